// SPDX-License-Identifier: Apache-2.0
// The Dtype of an element type of kernels. Included by host code that looks up compiled kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "params.h"

namespace anyattn::flash {

template <class Element>
inline constexpr int kDtypeOf = -1;
template <>
inline constexpr int kDtypeOf<__half> = kF16;
template <>
inline constexpr int kDtypeOf<__nv_bfloat16> = kBF16;
template <>
inline constexpr int kDtypeOf<__nv_fp8_e4m3> = kE4M3;

}  // namespace anyattn::flash
