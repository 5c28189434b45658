// SPDX-License-Identifier: Apache-2.0
// How rows of the Hopper decode end: partial sums become one, a row of out and its log-sum-exp are stored. Included by decode_kernel.cuh.
#pragma once

#include "cuda_common/convert.cuh"
#include "cuda_common/softmax.cuh"
#include "sm90/decode.h"

namespace anyattn::flash::sm90 {

// Takes partial sums, (maximum in base 2, sum) and four columns each, into (top, total, value).
template <int kCount>
__device__ __forceinline__ void take_in(const float2 (&state)[kCount], const float4 (&more)[kCount], float& top, float& total,
                                        float4& value) {
  float higher = top;
#pragma unroll
  for (int n = 0; n < kCount; ++n) higher = fmaxf(higher, state[n].x);
  const float base = higher == -INFINITY ? 0 : higher, shrink = cuda::exp2_fast(top - base);
  top = higher;
  total *= shrink;
  value = {value.x * shrink, value.y * shrink, value.z * shrink, value.w * shrink};
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const float weight = cuda::exp2_fast(state[n].x - base);
    total += weight * state[n].y;
    value.x += weight * more[n].x;
    value.y += weight * more[n].y;
    value.z += weight * more[n].z;
    value.w += weight * more[n].w;
  }
}

// Columns 4 quad to 4 quad + 3 of a row of out.
__device__ __forceinline__ void store_out(const DecodeArgs& a, int64_t token, int q_head, int quad, const float4& value) {
  char* const to = a.out.data + token * a.out.token_bytes + q_head * a.out.head_bytes;
  if (a.out_dtype == kF32)
    *reinterpret_cast<float4*>(to + quad * 16) = value;
  else if (a.out_dtype == kF16)
    *reinterpret_cast<uint2*>(to + quad * 8) = {cuda::pack2<__half>(value.x, value.y), cuda::pack2<__half>(value.z, value.w)};
  else
    *reinterpret_cast<uint2*>(to + quad * 8) = {cuda::pack2<__nv_bfloat16>(value.x, value.y),
                                                cuda::pack2<__nv_bfloat16>(value.z, value.w)};
}

// A row of out and its log-sum-exp, the sink counted in both: quad by quad, the first stores the latter. top: maximum in base 2.
__device__ __forceinline__ void write_row(const DecodeArgs& a, int64_t token, int q_head, float value_scale, int quad,
                                          float top, float total, const float4& value) {
  float scale = 1;
  if (a.sinks) {
    const float sink = a.sinks[q_head] * cuda::kLog2e, higher = fmaxf(top, sink);
    scale = top == -INFINITY ? 0 : cuda::exp2_fast(top - higher);
    total = (scale == 0 ? 0 : total * scale) + cuda::exp2_fast(sink - higher);
    top = higher;
  }
  const bool empty = top == -INFINITY;
  scale = empty ? 0 : __fdividef(scale, total) * value_scale;
  store_out(a, token, q_head, quad, {value.x * scale, value.y * scale, value.z * scale, value.w * scale});
  if (quad == 0 && a.lse)
    a.lse[token * a.lse_token_stride + q_head * a.lse_head_stride] =
        empty ? -INFINITY : (top + __log2f(total)) * cuda::kLn2 * a.lse_factor;
}

}  // namespace anyattn::flash::sm90
