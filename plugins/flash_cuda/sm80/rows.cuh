// SPDX-License-Identifier: Apache-2.0
// A unit's rows on their way out: sink, scale, log-sum-exp, the three output dtypes, rows that no request owns. Included by the
// attention kernel and by the merge.
#pragma once

#include "cuda_common/convert.cuh"
#include "cuda_common/softmax.cuh"
#include "sm80/launch.h"
#include "visible.cuh"

namespace anyattn::flash::sm80 {

// A piece of a unit: rows of one item, heads of one kv head, keys [first_key, last_key).
struct Unit {
  const int32_t* table;  // blocks of the request; ragged: its first key
  int tokens, heads;
  int first_key, last_key, keys;  // keys: of the request
  int kv_head, first_head;
  int64_t first_row;   // of q, out and lse
  int first_position;  // of that row in its request
  bool causal;
  float scale;   // softmax_scale times k's scale
  float factor;  // from a score of the softmax to base 2: scale * log2(e), or 1 where logit() has done it
  float v_scale;
};

__device__ inline Unit unit_of(const Call& call, const Batch& batch, const Item& item, int head_unit, int from, int to) {
  const int pieces = call.work.head_units / call.num_kv_heads;  // units of one kv head
  const int row = batch.query_start_loc[item.req], rows = batch.query_start_loc[item.req + 1] - row;
  Unit u;
  u.table = call.block_size > 0 ? batch.block_table + item.req * batch.table_stride : batch.key_start_loc + item.req;
  u.tokens = item.tokens;
  u.kv_head = head_unit / pieces;
  u.first_head = u.kv_head * call.group + head_unit % pieces * call.work.heads;
  u.heads = min(call.work.heads, (u.kv_head + 1) * call.group - u.first_head);
  u.keys = batch.seq_lens[item.req];
  u.first_key = item.key_begin + from;
  u.last_key = min(item.key_end, item.key_begin + to);
  u.first_row = row + item.first_token;
  u.first_position = u.keys - rows + item.first_token;
  u.causal = is_causal(call.mask, batch, item.req);
  const int scale_at = call.f.scales_per_head ? u.kv_head : 0;
  u.scale = call.f.softmax_scale * (call.f.k_scale ? call.f.k_scale[scale_at] : 1);
  u.factor = call.biased() ? 1 : u.scale * cuda::kLog2e;
  u.v_scale = call.f.v_scale ? call.f.v_scale[scale_at] : 1;
  return u;
}

// Where a row of the unit stands in q, out and lse.
struct RowPlace {
  int64_t token;
  int head;
};
__device__ inline RowPlace place_of(const Unit& u, int row) {
  return {u.first_row + row / u.heads, u.first_head + row % u.heads};
}

__device__ inline float* lse_of(const Call& call, const RowPlace& at) {
  return call.f.lse + at.token * call.f.lse_token_stride + at.head * call.f.lse_head_stride;
}

// Rows of the tile past the unit's, and those that no shared prefix concerns, are not written.
__device__ inline bool is_written(const Call& call, const Unit& u, int row, const RowPlace& at) {
  return row < u.tokens * u.heads && (!call.takes || call.takes[at.token]);
}

// What a row's sums are multiplied by, its natural log-sum-exp, the sink counted in both, and where other keys' result stands in out
// already, what that is multiplied by. top: maximum in base 2.
struct RowEnd {
  float scale, lse, keep = 0;
};
__device__ inline RowEnd end_row(const Call& call, const Unit& u, const RowPlace& at, float top, float sum) {
  if (sum != sum) top = 0;  // of scores that are NaN there is no maximum, and yet the row has seen keys
  if (call.takes) {
    const float other = *lse_of(call, at) / call.f.lse_factor * cuda::kLog2e, highest = fmaxf(top, other);
    if (highest == cuda::kMinusInfinity) return {0, highest};
    const float own = top == cuda::kMinusInfinity ? 0 : cuda::exp2_fast(top - highest), kept = cuda::exp2_fast(other - highest);
    const float total = sum * own + kept;
    return {u.v_scale * own / total, cuda::log_sum(highest, total), kept / total};
  }
  float shrink = 1;
  if (call.f.sinks) {
    const float sink = call.f.sinks[at.head] * cuda::kLog2e, highest = fmaxf(top, sink);
    if (highest == cuda::kMinusInfinity) return {0, highest};
    shrink = top == cuda::kMinusInfinity ? 0 : cuda::exp2_fast(top - highest);
    sum = sum * shrink + cuda::exp2_fast(sink - highest);
    top = highest;
  }
  if (top == cuda::kMinusInfinity) return {0, top};
  return {u.v_scale * shrink / sum, cuda::log_sum(top, sum)};
}

__device__ inline void write_lse(const Call& call, const RowPlace& at, float lse) {
  if (call.f.lse) *lse_of(call, at) = lse * call.f.lse_factor;
}

// kCount neighbouring columns of a row of out; rows lie at multiples of 16 bytes.
template <int kCount>
__device__ void store_columns(char* row, int dtype, int column, const float (&x)[kCount]) {
  if (dtype == kF32) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) *reinterpret_cast<float2*>(row + 4 * (column + i)) = {x[i], x[i + 1]};
    return;
  }
  uint32_t two[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    two[i] = dtype == kBF16 ? cuda::pack2<__nv_bfloat16>(x[2 * i], x[2 * i + 1]) : cuda::pack2<__half>(x[2 * i], x[2 * i + 1]);
  if constexpr (kCount == 8)
    *reinterpret_cast<uint4*>(row + 2 * column) = {two[0], two[1], two[2], two[3]};
  else
    *reinterpret_cast<uint32_t*>(row + 2 * column) = two[0];
}

__device__ inline float2 load_two(const char* row, int dtype, int column) {
  if (dtype == kBF16) return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(row + 2 * column));
  if (dtype == kF16) return __half22float2(*reinterpret_cast<const __half2*>(row + 2 * column));
  return *reinterpret_cast<const float2*>(row + 4 * column);
}

// Columns [column, column + kCount) of a row as it ends; columns past head_size_v are the tile's, not the tensor's.
template <int kCount>
__device__ void write_columns(const Call& call, const RowPlace& at, int column, const RowEnd& end, float (&x)[kCount]) {
  if (column >= call.head_size_v) return;
  char* to = call.f.out.data + at.token * call.f.out.token_bytes + at.head * call.f.out.head_bytes;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const float2 other = call.takes ? load_two(to, call.out_dtype, column + i) : float2{0, 0};
    x[i] = x[i] * end.scale + end.keep * other.x;
    x[i + 1] = x[i + 1] * end.scale + end.keep * other.y;
  }
  store_columns(to, call.out_dtype, column, x);
}

// Rows past the last request: 0 and -inf.
__device__ inline void clear_rows(const Call& call, const Batch& batch) {
  const int from = batch.num_reqs > 0 ? batch.query_start_loc[batch.num_reqs] : 0, heads = call.group * call.num_kv_heads;
  for (int64_t i = static_cast<int64_t>(from) * heads + blockIdx.x; i < static_cast<int64_t>(batch.num_tokens) * heads;
       i += gridDim.x) {
    const int64_t token = i / heads, head = i % heads;
    char* row = call.f.out.data + token * call.f.out.token_bytes + head * call.f.out.head_bytes;
    for (int column = 2 * threadIdx.x; column < call.head_size_v; column += 2 * blockDim.x)
      store_columns(row, call.out_dtype, column, {0.f, 0.f});
    if (threadIdx.x == 0 && call.f.lse)
      call.f.lse[token * call.f.lse_token_stride + head * call.f.lse_head_stride] = cuda::kMinusInfinity;
  }
}

}  // namespace anyattn::flash::sm80
