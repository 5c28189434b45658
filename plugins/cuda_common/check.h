// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime answers, as anyattn::Error. Included by host code of kernel families.
#pragma once

#include <anyattn/types.h>
#include <cuda_runtime.h>

#include <anyattn/error.hpp>

namespace anyattn::cuda {

inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw Error(ANYATTN_DEVICE_ERROR, what, ": ", cudaGetErrorString(code));
}

}  // namespace anyattn::cuda
