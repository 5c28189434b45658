// SPDX-License-Identifier: Apache-2.0
// The instances of the general attention kernel by tile and dtype; each unit of instances.txt defines one. Included by launch.cu and
// by the units.
#pragma once

#include <cuda_runtime.h>

#include "sm80/launch.h"

namespace anyattn::flash::sm80 {

// One instance: its attributes are set in prepare; launch queues it.
struct Instance {
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const Call&, cudaStream_t);
};

template <int kDtype, bool kFp8, int kHead, bool kPrefill>
Instance instance();

// overlaps: it may begin while the launch before it drains.
template <class... Parameters, class... Arguments>
cudaError_t launch_after(cudaStream_t stream, int overlaps, int blocks, int threads, int shared_bytes,
                         void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace anyattn::flash::sm80
