// SPDX-License-Identifier: Apache-2.0
// Conversions between float32 and 16-bit elements, two at a time. Included by kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace anyattn::cuda {

// Rounded to nearest even; the first in the low half.
template <class Element>
__device__ __forceinline__ uint32_t pack2(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
template <>
__device__ __forceinline__ uint32_t pack2<__half>(float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Four e4m3 codes as float16, exactly; sm_89 and newer have an instruction for two.
__device__ __forceinline__ uint2 widen_four_e4m3(uint32_t codes) {
  uint2 wide;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(wide.x), "=r"(wide.y)
      : "r"(codes));
  return wide;
}

// Eight e4m3 codes as eight elements, exactly: both 16-bit types hold every value of the 8-bit one.
template <class Element>
__device__ __forceinline__ uint4 widen_e4m3(uint2 codes) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const auto two = static_cast<__nv_fp8x2_storage_t>((i < 2 ? codes.x : codes.y) >> (i % 2 * 16));
    const __half2_raw half = __nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3);
    if constexpr (sizeof(Element) == 2 && __is_same(Element, __half)) {
      pairs[i] = half.x | static_cast<uint32_t>(half.y) << 16;
    } else {
      const float2 wide = __half22float2(__half2(half));
      pairs[i] = pack2<Element>(wide.x, wide.y);
    }
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

}  // namespace anyattn::cuda
