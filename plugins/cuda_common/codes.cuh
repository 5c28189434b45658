// SPDX-License-Identifier: Apache-2.0
// What kernels that multiply 8-bit codes (e4m3) need beside wgmma.cuh: packing. Included by kernels of sm_90.
#pragma once

#include <cstdint>

namespace anyattn::cuda {

// Four e4m3 codes, rounded to nearest even, saturated at 448; the first in the low byte.
__device__ __forceinline__ uint32_t pack4_e4m3(float x0, float x1, float x2, float x3) {
  uint32_t four;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(four)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return four;
}

}  // namespace anyattn::cuda
