// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime answers, as anyattn::Error. Included by host code of kernel families.
#pragma once

#include <cuda_runtime.h>

#include <anyattn/device_status.hpp>
#include <anyattn/error.hpp>

namespace anyattn::cuda {

inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw Error(status_of_device_error(code), what, ": ", cudaGetErrorString(code));
}

}  // namespace anyattn::cuda
