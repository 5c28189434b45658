// SPDX-License-Identifier: Apache-2.0
// What kernels that multiply 8-bit codes (e4m3) need beside wgmma.cuh: packing, matrices by address. Included by kernels of sm_90.
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

// Four 8 x 8 matrices of pairs of codes; a lane names a row's address in shared memory, lanes 8 i to 8 i + 7 those of matrix i.
__device__ __forceinline__ void load_pairs_transposed(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void store_pairs(uint32_t row, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}

}  // namespace anyattn::cuda
