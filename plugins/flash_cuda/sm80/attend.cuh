// SPDX-License-Identifier: Apache-2.0
// The general attention kernel: tiles of keys through cp.async, products through mma.sync, an online softmax in between
// (arXiv:2205.14135; split over keys as in arXiv:2311.01282). Every feature, sm_80 and newer. Included by the instance units.
//   q [tokens, num_q_heads, head_size] | k, v paged (HND or NHD) or ragged | out [tokens, num_q_heads, head_size_v]
// Shared memory: the unit's q, two stages of k and v, and where their rows lie. Rows of 128-byte segments whose 16-byte chunks are
// exchanged by the row's low bits, so that the eight rows of a matrix load lie in eight banks.
#pragma once

#include "cuda_common/convert.cuh"
#include "cuda_common/launch.cuh"
#include "cuda_common/matrix.cuh"
#include "cuda_common/mma_sm80.cuh"
#include "cuda_common/softmax.cuh"
#include "sm80/launch.h"
#include "sm80/rows.cuh"
#include "visible.cuh"

namespace anyattn::flash::sm80 {

// One block's shared memory.
template <Tile kTile>
struct Shared {
  char* memory;

  static __device__ int chunk_at(int row, int chunk) { return row * kTile.row_bytes() + ((chunk ^ (row & 7)) * 16); }
  __device__ char* q(int row, int chunk) const { return memory + chunk_at(row, chunk); }
  __device__ char* k(int stage, int row, int chunk) const {
    return memory + kTile.query_bytes() + stage * kTile.stage_bytes() + chunk_at(row, chunk);
  }
  __device__ char* v(int stage, int row, int chunk) const { return k(stage, row, chunk) + kTile.stage_bytes() / 2; }
  // [row] of the stage's tile: bytes from k.data and v.data; -1: zeros
  __device__ longlong2* offsets(int stage) const {
    return reinterpret_cast<longlong2*>(memory + kTile.query_bytes() + 2 * kTile.stage_bytes()) + stage * kTile.keys;
  }
  // Where the cache holds 8-bit codes: two stages of them in place of the second stage; the first holds the widened tile.
  __device__ char* codes(int stage, int row, int chunk, bool of_v) const {
    return memory + kTile.query_bytes() + kTile.stage_bytes() + stage * kTile.stage_bytes() / 2 +
           ((of_v ? kTile.keys : 0) + row) * kTile.head + chunk * 8;
  }
  // After the last tile, in place of q and the tiles: [side: warps that shared the keys][row] outputs, maximum and sum.
  static constexpr int kPitch = kTile.head + 8;
  static_assert(kTile.warps_over_keys * kTile.rows * kPitch * 4 <= kTile.shared_bytes());
  __device__ float* staged(int side, int row) const {
    return reinterpret_cast<float*>(memory) + (side * kTile.rows + row) * kPitch;
  }
};

// The block that holds `key` of the request; -1 outside the piece, and where the table names none. Ragged: 0 inside.
__device__ inline int find_block(const Call& call, const Unit& u, int key) {
  if (key >= u.last_key) return -1;
  if (call.block_size == 0) return *u.table + static_cast<int64_t>(key) < call.f.num_keys ? 0 : -1;
  const int block = u.table[key / call.block_size];
  return static_cast<uint64_t>(static_cast<int64_t>(block)) < call.f.num_blocks ? block : -1;
}

// Row threadIdx.x of a stage's tile holds `key`.
template <Tile kTile>
__device__ void post_row(const Call& call, const Unit& u, const Shared<kTile>& shared, int stage, int block, int key) {
  if (threadIdx.x >= kTile.keys) return;
  const int64_t row = call.block_size == 0 ? *u.table + static_cast<int64_t>(key) : key % call.block_size;
  const int64_t first = block * call.f.block_bytes;
  longlong2 at{first + row * call.f.k.token_bytes, first + row * call.f.v.token_bytes};
  if (block < 0) at = {-1, -1};
  shared.offsets(stage)[threadIdx.x] = at;
}

template <Tile kTile>
__device__ void load_query(const Call& call, const Unit& u, const Shared<kTile>& shared) {
  constexpr int kChunks = kTile.row_bytes() / 16;
  for (int i = threadIdx.x; i < kTile.rows * kChunks; i += kTile.threads()) {
    const int row = i / kChunks, chunk = i % kChunks, token = row / u.heads, head = row % u.heads;
    const bool inside = token < u.tokens && chunk * 8 < call.head_size;
    const char* from =
        call.f.q.data + (u.first_row + token) * call.f.q.token_bytes + (u.first_head + head) * call.f.q.head_bytes + chunk * 16;
    cuda::copy_async(shared.q(row, chunk), inside ? from : call.f.q.data, inside);
  }
}

// Eight elements of a row a copy, into the tile or, as codes, beside it.
template <class Code, Tile kTile>
__device__ void load_keys(const Call& call, const Unit& u, const Shared<kTile>& shared, int stage) {
  constexpr int kChunks = kTile.row_bytes() / 16, kBytes = 8 * sizeof(Code);
  const char* k = call.f.k.data + u.kv_head * call.f.k.head_bytes;
  const char* v = call.f.v.data + u.kv_head * call.f.v.head_bytes;
#pragma unroll
  for (int n = 0; n < kTile.keys * kChunks / kTile.threads(); ++n) {
    const int i = threadIdx.x + n * kTile.threads(), row = i / kChunks, chunk = i % kChunks;
    const longlong2 at = shared.offsets(stage)[row];
    const bool in_k = at.x >= 0 && chunk * 8 < call.head_size, in_v = at.x >= 0 && chunk * 8 < call.head_size_v;
    const char *from_k = in_k ? k + at.x + chunk * kBytes : k, *from_v = in_v ? v + at.y + chunk * kBytes : v;
    if constexpr (sizeof(Code) == 1) {
      cuda::copy_async_8(shared.codes(stage, row, chunk, false), from_k, in_k);
      cuda::copy_async_8(shared.codes(stage, row, chunk, true), from_v, in_v);
    } else {
      cuda::copy_async(shared.k(stage, row, chunk), from_k, in_k);
      cuda::copy_async(shared.v(stage, row, chunk), from_v, in_v);
    }
  }
}

// The codes of a stage as the tile of stage 0.
template <class T, Tile kTile>
__device__ void widen_keys(const Shared<kTile>& shared, int stage) {
  constexpr int kChunks = kTile.row_bytes() / 16;
#pragma unroll 4
  for (int n = 0; n < 2 * kTile.keys * kChunks / kTile.threads(); ++n) {
    const int i = threadIdx.x + n * kTile.threads(), row = i / kChunks % kTile.keys, chunk = i % kChunks;
    const bool of_v = i >= kTile.keys * kChunks;
    const uint4 wide = cuda::widen_e4m3<T>(*reinterpret_cast<const uint2*>(shared.codes(stage, row, chunk, of_v)));
    *reinterpret_cast<uint4*>(of_v ? shared.v(0, row, chunk) : shared.k(0, row, chunk)) = wide;
  }
}

// The score q k as it enters the softmax, in base 2; distance: key - position.
__device__ inline float logit(const Call& call, float score, float scale, float slope, int distance) {
  score *= scale;
  if (call.soft_cap != 0) score = call.soft_cap * cuda::soft_capped(2 * cuda::kLog2e * __fdividef(score, call.soft_cap));
  const float away = static_cast<float>(distance);
  if (call.alibi == kAlibiLinear) score += slope * away;
  if (call.alibi == kAlibiSqrt && distance < 0) score -= slope * __fsqrt_rn(-away);
  if (call.alibi == kAlibiSymmetric) score -= slope * fabsf(away);
  return score * cuda::kLog2e;
}

// What one thread holds: of each 16 rows of its warp two (lane / 4 and 8 below it).
template <Tile kTile>
struct State {
  static constexpr int kSets = kTile.warp_rows / 16;
  float o[kSets][kTile.head / 8][4];  // [16 rows][tile of 8 columns][2 row + column]
  cuda::OnlineSoftmax<> softmax[kSets];
};

// s[set of 16 rows][16 rows x kKeys] = q k^T for the warp's rows and keys.
template <class T, Tile kTile, int kSets, int kCount>
__device__ void dot_qk(const Shared<kTile>& shared, int stage, int first_row, int first_key, float (&s)[kSets][kCount]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kSets * kCount; ++i) s[i / kCount][i % kCount] = 0;
#pragma unroll
  for (int c = 0; c < kTile.head / 16; ++c) {
    uint32_t q[kSets][4];
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      cuda::load_matrix(q[set], shared.q(first_row + 16 * set + lane % 16, 2 * c + lane / 16));
#pragma unroll
    for (int n = 0; n < kCount / 8; ++n) {
      uint32_t k[4];
      cuda::load_matrix(k, shared.k(stage, first_key + 16 * n + lane / 16 * 8 + lane % 8, 2 * c + lane / 8 % 2));
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        cuda::multiply_add<T>(reinterpret_cast<float(&)[4]>(s[set][8 * n]), q[set], k[0], k[1]);
        cuda::multiply_add<T>(reinterpret_cast<float(&)[4]>(s[set][8 * n + 4]), q[set], k[2], k[3]);
      }
    }
  }
}

// o[rows of the warp x head] += p v, p in place of the scores.
template <class T, Tile kTile, int kSets, int kCount>
__device__ void dot_pv(const Shared<kTile>& shared, int stage, int first_key, const float (&p)[kSets][kCount],
                       State<kTile>& state) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kCount / 8; ++n) {
    uint32_t weights[kSets][4];
#pragma unroll
    for (int set = 0; set < kSets; ++set)
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[set][i] = cuda::pack2<T>(p[set][8 * n + 2 * i], p[set][8 * n + 2 * i + 1]);
#pragma unroll
    for (int c = 0; c < kTile.head / 16; ++c) {
      uint32_t v[4];
      cuda::load_matrix_transposed(v, shared.v(stage, first_key + 16 * n + lane % 16, 2 * c + lane / 16));
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        cuda::multiply_add<T>(state.o[set][2 * c], weights[set], v[0], v[1]);
        cuda::multiply_add<T>(state.o[set][2 * c + 1], weights[set], v[2], v[3]);
      }
    }
  }
}

// All tiles of the unit's piece. A warp with keys of its own sees its part of each tile only.
template <class T, class Code, Tile kTile>
__device__ void attend_keys(const Call& call, const Unit& u, const Shared<kTile>& shared, State<kTile>& state) {
  constexpr int kWarpKeys = kTile.keys / kTile.warps_over_keys, kSets = State<kTile>::kSets;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_row = warp / kTile.warps_over_keys * kTile.warp_rows, warp_key = warp % kTile.warps_over_keys * kWarpKeys;
  const auto position_of = [&](int row) { return u.first_position + min(row / u.heads, u.tokens - 1); };
  const RowMask mask{call.mask, u.causal, u.keys};
  int all_begin = 0, all_end = 0x7fffffff;  // keys that all of the thread's rows see
#pragma unroll
  for (int set = 0; set < kSets; ++set)
#pragma unroll
    for (int r = 0; r < 2; ++r) {  // rows past the unit are not written
      const Interval seen = mask.seen(position_of(first_row + 16 * set + lane / 4 + 8 * r));
      all_begin = max(all_begin, seen.begin);
      all_end = min(all_end, seen.end);
    }
  // Keys that some row of the warp sees: both ends grow with the position.
  const int some_begin = mask.seen(position_of(first_row)).begin;
  const int some_end = first_row >= u.tokens * u.heads ? 0 : mask.seen(position_of(first_row + kTile.warp_rows - 1)).end;
#pragma unroll
  for (int set = 0; set < kSets; ++set)
#pragma unroll
    for (int c = 0; c < kTile.head / 8; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[set][c][i] = 0;

  const int steps = (u.last_key - u.first_key + kTile.keys - 1) / kTile.keys;
  const auto row_key = [&](int step) { return u.first_key + step * kTile.keys + static_cast<int>(threadIdx.x); };
  for (int s = 0; s < 2; ++s)
    post_row(call, u, shared, s, threadIdx.x < kTile.keys ? find_block(call, u, row_key(s)) : -1, row_key(s));
  __syncthreads();
  if (steps > 0) load_keys<Code>(call, u, shared, 0);
  cuda::commit_copies();  // with q's
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2, first = u.first_key + step * kTile.keys + warp_key;
    cuda::wait_copies<0>();
    __syncthreads();
    if (step + 1 < steps) load_keys<Code>(call, u, shared, 1 - stage);
    cuda::commit_copies();
    const int ahead = threadIdx.x < kTile.keys ? find_block(call, u, row_key(step + 2)) : -1;  // waited for below
    const int tile = sizeof(Code) == 1 ? 0 : stage;
    if constexpr (sizeof(Code) == 1) {
      widen_keys<T>(shared, stage);
      __syncthreads();
    }

    if (first < some_end && first + kWarpKeys > some_begin) {
      float s[kSets][kWarpKeys / 2];  // [16 rows][tile of 8 keys][2 row + key]
      dot_qk<T, kTile>(shared, tile, first_row, warp_key, s);
      const auto key_of = [&](int i) { return first + i / 4 * 8 + lane % 4 * 2 + i % 2; };
      const bool masked = first < all_begin || first + kWarpKeys > all_end;
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        if (call.biased()) {
          float slope[2] = {0, 0};
          int position[2];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int row = first_row + 16 * set + lane / 4 + 8 * r;
            position[r] = position_of(row);
            if (call.alibi != kAlibiNone) slope[r] = call.f.slopes[u.first_head + row % u.heads];
          }
#pragma unroll
          for (int i = 0; i < kWarpKeys / 2; ++i)
            s[set][i] = logit(call, s[set][i], u.scale, slope[i / 2 % 2], key_of(i) - position[i / 2 % 2]);
        }
        if (masked) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int row = first_row + 16 * set + lane / 4 + 8 * r;
            const Interval seen = mask.seen(position_of(row));
#pragma unroll
            for (int i = 2 * r; i < kWarpKeys / 2; i += i % 2 == 0 ? 1 : 3)
              if (key_of(i) < seen.begin || key_of(i) >= seen.end) s[set][i] = cuda::kMinusInfinity;
          }
        }
        float shrink[2];
        if (state.softmax[set].step(s[set], u.factor, shrink)) {
#pragma unroll
          for (int c = 0; c < kTile.head / 8; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) state.o[set][c][i] *= shrink[i / 2];
        }
      }
      dot_pv<T, kTile>(shared, tile, warp_key, s, state);
    }
    post_row(call, u, shared, stage, ahead, row_key(step + 2));
  }
  cuda::wait_copies<0>();
}

// All keys of the piece are seen: what the warps hold meets in shared memory and leaves in pieces of eight columns.
template <Tile kTile>
__device__ void finish_unit(const Call& call, const Unit& u, const Shared<kTile>& shared, const State<kTile>& state,
                            float* part) {
  constexpr int kEights = kTile.head / 8;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, side = warp % kTile.warps_over_keys;
  __syncthreads();  // the tiles and q are read
#pragma unroll
  for (int half = 0; half < kTile.warp_rows / 8; ++half) {
    const int set = half / 2, r = half % 2;
    const float sum = cuda::quad_sum(state.softmax[set].total[r]);
    float* to = shared.staged(side, warp / kTile.warps_over_keys * kTile.warp_rows + lane / 4 + 8 * half);
    if (lane % 4 == 0) *reinterpret_cast<float2*>(to + kTile.head) = {state.softmax[set].base[r] * u.factor, sum};
#pragma unroll
    for (int c = 0; c < kTile.head / 8; ++c)
      *reinterpret_cast<float2*>(to + 8 * c + lane % 4 * 2) = {state.o[set][c][2 * r], state.o[set][c][2 * r + 1]};
  }
  __syncthreads();
  const int rows = u.tokens * u.heads;
  const unsigned row_lanes = (kEights == 32 ? ~0u : (1u << kEights % 32) - 1) << (lane & ~(kEights - 1) & 31);
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * kEights; i += kTile.threads()) {
    const int row = i / kEights, column = i % kEights * 8;
    const RowPlace at = place_of(u, row);
    if (!is_written(call, u, row, at)) continue;
    float top = cuda::kMinusInfinity, sum = 0, value[8] = {};
#pragma unroll
    for (int w = 0; w < kTile.warps_over_keys; ++w) top = fmaxf(top, shared.staged(w, row)[kTile.head]);
#pragma unroll
    for (int w = 0; w < kTile.warps_over_keys; ++w) {
      const float* from = shared.staged(w, row);
      const float weight = from[kTile.head] == cuda::kMinusInfinity ? 0 : cuda::exp2_fast(from[kTile.head] - top);
      sum += weight * from[kTile.head + 1];
#pragma unroll
      for (int n = 0; n < 8; ++n) value[n] += weight * from[column + n];
    }
    if (part) {
      float* to = part + row * part_floats(kTile);
      if (column == 0) *reinterpret_cast<float2*>(to) = {top, sum};
      store_columns(reinterpret_cast<char*>(to + 4), kF32, column, value);
      continue;
    }
    const RowEnd end = end_row(call, u, at, top, sum);
    __syncwarp(row_lanes);  // they have read what the next line overwrites
    if (column == 0) write_lse(call, at, end.lse);
    write_columns(call, at, column, end, value);
  }
}

// A block of the fixed launch: its share of the line, whatever the lengths of this replay are.
// Code: what the cache holds, T or a byte (e4m3).
template <class T, class Code, int kHead, bool kPrefill>
__global__ void __launch_bounds__(tile_of(kHead, kPrefill).threads(), tile_of(kHead, kPrefill).blocks)
    attend(const __grid_constant__ Call call) {
  constexpr Tile kTile = tile_of(kHead, kPrefill);
  extern __shared__ __align__(128) char memory[];
  const Shared<kTile> shared{memory};
  cuda::let_launch_behind_begin();  // the merge may come and read what it is to do
  const Batch& batch = *call.f.kept;
  const Place end = call.work.places[blockIdx.x + 1];
  Place at = call.work.places[blockIdx.x];
  Item item = at.first;
  while (at.item < end.item || (at.item == end.item && (at.head < end.head || (at.head == end.head && at.tile < end.tile)))) {
    const bool last = at.item == end.item && at.head == end.head;
    const int tile_end = last ? end.tile : item.tiles;
    const bool cut = at.tile > 0 || tile_end < item.tiles;
    float* part = cut ? call.part(2 * blockIdx.x + (at.tile == 0), kTile.rows * part_floats(kTile)) : nullptr;
    const Unit u = unit_of(call, batch, item, at.head, at.tile * kTile.keys, tile_end * kTile.keys);
    State<kTile> state;
    load_query(call, u, shared);
    attend_keys<T, Code>(call, u, shared, state);
    if (call.overlaps) cuda::wait_for_launch_before();
    finish_unit(call, u, shared, state, part);
    __syncthreads();  // before the next unit's q
    at.tile = 0;
    if (last) break;
    if (++at.head == call.work.head_units) {
      at.head = 0;
      if (++at.item < end.item || (at.item == end.item && (end.head > 0 || end.tile > 0))) item = call.work.items[at.item];
    }
  }
  if (call.overlaps) cuda::wait_for_launch_before();  // blocks without work too: this launch ends after the other one
  if (call.work.min_query == 0) clear_rows(call, batch);
}

}  // namespace anyattn::flash::sm80
