// SPDX-License-Identifier: Apache-2.0
// Softmax over keys that arrive tile by tile, on accumulator fragments (wgmma, mma.sync): a thread holds 2 rows, a quad shares them.
// Included by kernels. Source: online softmax, arXiv:1805.02867. Works in powers of 2: scale carries log2(e).
#pragma once

#include <cstdint>
#include <numbers>

namespace anyattn::cuda {

inline constexpr float kLog2e = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;
inline constexpr float kMinusInfinity = -__builtin_huge_valf();

__device__ __forceinline__ float exp2_fast(float x) {  // 2 ulp; 0 for -inf
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// cap * tanh(y), given 2 log2(e) y: within 1e-7 of tanh, cap where the exponential is infinite. A fifth of the registers of tanhf, which
// all of a thread's scores would call.
__device__ __forceinline__ float soft_capped(float doubled, float cap = 1) {
  return cap - __fdividef(2 * cap, 1 + exp2_fast(doubled));
}
// The natural logarithm of a row's sum, whose terms were taken against 2^top.
__device__ __forceinline__ float log_sum(float top, float sum) { return (top + log2_fast(sum)) * kLn2; }

// kLift: exponentials are 2^kLift at the base. kSlack: they may reach 2^(kLift + kSlack).
template <int kLift = 0, int kSlack = 8>
struct OnlineSoftmax {
  float base[2] = {kMinusInfinity, kMinusInfinity};  // what exponents are taken against: a recent maximum of the row
  float total[2] = {0, 0};                           // this thread's share of the row's sum

  // s[4 j + 2 row + e] becomes 2^(scale (s - base) + kLift). True if sums so far, in any row of the warp, have to be multiplied by factor.
  // The base follows the maximum only where that grew by more than 2^kSlack: sums stay below 2^kSlack times their number, exact in
  // float32, and most tiles leave the output accumulator alone. The choice is a row's own, so no row depends on its neighbours.
  template <int kCount>
  __device__ __forceinline__ bool step(float (&s)[kCount], float scale, float (&factor)[2]) {
    float top[2] = {s[0], s[2]}, shift[2];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int r = 0; r < 2; r++) top[r] = fmaxf(top[r], fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      top[r] = quad_max(top[r]);
      const bool grew = (top[r] - base[r]) * scale > kSlack;  // false for -inf against -inf
      factor[r] = exp2_fast(grew ? (base[r] - top[r]) * scale : 0.0f);
      base[r] = grew ? top[r] : base[r];
      shift[r] = base[r] == kMinusInfinity ? 0.0f : base[r] * scale - kLift;
    }
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      s[i] = exp2_fast(fmaf(s[i], scale, -shift[i / 2 % 2]));
      sum[i % 4] += s[i];
    }
#pragma unroll
    for (int r = 0; r < 2; r++) total[r] = fmaf(total[r], factor[r], sum[2 * r] + sum[2 * r + 1]);
    return __any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f);
  }
};

}  // namespace anyattn::cuda
