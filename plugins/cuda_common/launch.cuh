// SPDX-License-Identifier: Apache-2.0
// A launch that may begin while the one before it drains (programmatic dependent launch, sm_90), and what its kernel says of that.
// Included by host code of kernel families, which launches, and by kernels.
#pragma once

#include <cuda_runtime.h>

namespace anyattn::cuda {

struct Launch {
  cudaStream_t stream;
  int blocks, threads, shared_bytes = 0;
  bool overlaps = false;  // the kernel calls wait_for_launch_before() ahead of all that the launch before touches
  int cluster = 1;        // blocks; sm_90
};

template <class... Parameters, class... Arguments>
cudaError_t launch(const Launch& at, void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  if (at.overlaps) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (at.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(at.cluster), 1, 1};
  }
  config.gridDim = dim3(static_cast<unsigned>(at.blocks));
  config.blockDim = dim3(static_cast<unsigned>(at.threads));
  config.dynamicSmemBytes = static_cast<size_t>(at.shared_bytes);
  config.stream = at.stream;
  config.attrs = attributes;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Until the launch before this one has ended and what it stored is seen. Nothing where launches do not overlap, and before sm_90.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The launch behind this one may begin once every block has said so or ended.
__device__ __forceinline__ void let_launch_behind_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace anyattn::cuda
