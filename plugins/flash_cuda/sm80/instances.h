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

}  // namespace anyattn::flash::sm80
