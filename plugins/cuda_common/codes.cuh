// SPDX-License-Identifier: Apache-2.0
// What kernels that multiply 8-bit codes (e4m3) need beside wgmma.cuh: packing, matrices by address, a softmax whose exponentials
// become codes. Included by kernels of sm_90.
#pragma once

#include "cuda_common/softmax.cuh"

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

// As OnlineSoftmax, in parts, without the sums: exponentials are 2^kLift at the base and at most 2^(kSlack + kLift), because codes
// lie best between 2^-6 and 448.
struct CodesSoftmax {
  static constexpr int kSlack = 2, kLift = 6;
  float base[2] = {kMinusInfinity, kMinusInfinity};

  // The base follows the maximum of s[4 j + 2 row + e]. True if sums so far, in any row of the warp, are to be multiplied by factor.
  template <int kCount>
  __device__ __forceinline__ bool follow(const float (&s)[kCount], float scale, float (&factor)[2], float (&shift)[2]) {
    float part[2][4], top[2];  // four maxima side by side
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int c = 0; c < 4; c++) part[r][c] = s[4 * (c / 2) + 2 * r + c % 2];
#pragma unroll
      for (int i = 8; i < kCount; i += 8) {
#pragma unroll
        for (int c = 0; c < 4; c++) part[r][c] = fmaxf(part[r][c], s[i + 4 * (c / 2) + 2 * r + c % 2]);
      }
      top[r] = quad_max(fmaxf(fmaxf(part[r][0], part[r][1]), fmaxf(part[r][2], part[r][3])));
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const bool grew = (top[r] - base[r]) * scale > kSlack;  // false for -inf against -inf
      factor[r] = exp2_fast(grew ? (base[r] - top[r]) * scale : 0.0f);
      base[r] = grew ? top[r] : base[r];
      shift[r] = base[r] == kMinusInfinity ? 0.0f : base[r] * scale - kLift;
    }
    return __any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f);
  }
  // s[i] becomes 2^(scale (s - base) + kLift) for i in [kBegin, kEnd).
  template <int kBegin, int kEnd, int kCount>
  __device__ __forceinline__ void exponentials(float (&s)[kCount], float scale, const float (&shift)[2]) const {
#pragma unroll
    for (int i = kBegin; i < kEnd; i++) s[i] = exp2_fast(fmaf(s[i], scale, -shift[i / 2 % 2]));
  }
};

}  // namespace anyattn::cuda
