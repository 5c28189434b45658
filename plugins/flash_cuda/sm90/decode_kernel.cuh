// SPDX-License-Identifier: Apache-2.0
// Decode on sm_90: each block works off its line of chunks, in one launch. Included by decode.cu.
//
// Every warp is a pipeline of its own: it takes every eighth chunk of 16 keys, its copies come through the copy engine into its own
// ring, and it keeps its own maximum, sum and output (arXiv:2205.14135). Warps meet where a unit ends; the pieces of a unit that
// is cut meet in scratch, and the block that comes last merges them.
//   q [tokens of the unit x heads of the kv head, 16 rows at most] | S = Q K^T: m16n8k16, n over keys | O += P V: k over keys
// Shared memory: kWarps * depth * 16 * 2 * head_size * 2 bytes of ring (192 KiB at depth 3 and head size 128; 35 bytes a nanosecond and
// multiprocessor, 1.2 us away, need 42 KiB), then the outputs of the warps where they meet.
#pragma once

#include "cuda_common/convert.cuh"
#include "cuda_common/mma_sm80.cuh"
#include "cuda_common/softmax.cuh"
#include "cuda_common/tma.cuh"
#include "sm90/decode.h"

namespace anyattn::flash::sm90 {

inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ int load_word(const void* words, int index) { return __ldg(static_cast<const int*>(words) + index); }
__device__ __forceinline__ int64_t joined(int low, int high) {
  return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low));
}
__device__ __forceinline__ int word_of(int words, int index) { return __shfl_sync(~0u, words, index); }

// A walk over the units of a line. All of a warp's lanes hold the same, `words` apart: lane i holds word i of the item.
struct Walk {
  int words, item, head, left, unit_cost;
  int begin, end;  // chunks of the unit now open
  int turn;  // the warp whose turn it is at `begin`: warps go on where they stopped, so that none gets more of short units

  __device__ __forceinline__ void open(const DecodeArgs& a, int from) {
    turn = a.invariant ? from : turn + end - begin;  // invariant: a chunk's warp follows from its place in the request
    begin = from;
    end = min(word_of(words, kItemEnd), from + left);
    left = end == word_of(words, kItemEnd) ? left - max(1, end - begin) - unit_cost : 0;
  }
  __device__ __forceinline__ void next(const DecodeArgs& a, int lane) {
    if (++head == a.num_kv_heads) {
      head = 0;
      words = load_word(a.items + ++item, lane % 16);
    }
    open(a, word_of(words, kItemBegin));
  }
  __device__ __forceinline__ int first_chunk(int warp) const { return begin + (warp - turn & kWarps - 1); }
};

// Block numbers of 32 chunks from `first` on, one a lane, and where in its block the chunk stands.
struct Window {
  int first, block, row;

  __device__ __forceinline__ void place(const DecodeArgs& a, int chunk, int lane) {
    first = chunk;
    row = (chunk + lane) % a.chunks_per_block * kChunk;
  }
  __device__ __forceinline__ void load(const DecodeArgs& a, const int32_t* table, int chunk, int end, int lane) {
    place(a, chunk, lane);
    block = chunk + lane < end ? __ldg(table + (chunk + lane) / a.chunks_per_block) : -1;
  }
};

template <class T, int kHead, bool kWide>  // kWide: more than 8 rows
__global__ void __launch_bounds__(kWarps * 32, 1)
    decode(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
           const __grid_constant__ DecodeArgs a) {
  constexpr int kHalves = kHead / 64, kPlane = kChunk * kHead * 2, kSides = kWide ? 2 : 1, kQuads = kHead / 4,
                kPitch = kHead + kStagePad;
  extern __shared__ char raw[];
  char* const shared = raw + (-cuda::shared_address(raw) & 1023);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x);
  const int line_words = load_word(a.lines + rank, lane);
  Window window;
  window.block = load_word(a.lines + rank, 32 + lane);
  if (threadIdx.x == 0) {
    cuda::prefetch_map(k_map);
    cuda::prefetch_map(v_map);
  }
  char* const ring = shared + warp * a.depth * 2 * kPlane;
  float* const staged = reinterpret_cast<float*>(shared + kWarps * a.depth * 2 * kPlane);
  float2* const states = reinterpret_cast<float2*>(staged + kWarps * a.rows * kPitch);
  cuda::Mbarrier* const barriers = reinterpret_cast<cuda::Mbarrier*>(states + kWarps * a.rows) + warp * a.depth;
  __shared__ uint32_t ticket;
  if (lane < a.depth) barriers[lane].init(1);
  cuda::fence_mbarrier_init();
  __syncwarp();

  Walk loads{line_words,
             word_of(line_words, kItemIndex),
             word_of(line_words, kLineHead),
             word_of(line_words, kLineCost),
             word_of(line_words, kUnitCost),
             0,
             0,
             0};
  Walk works = loads;
  const int32_t* const tables =
      reinterpret_cast<const int32_t*>(joined(word_of(line_words, kTableLow), word_of(line_words, kTableHigh)));
  const int32_t* table = tables + joined(word_of(line_words, kRowLow), word_of(line_words, kRowHigh));
  int load_chunk = 0;
  const bool any = loads.left > 0;
  Window ahead{0, -1, 0};
  if (any) {
    loads.open(a, word_of(line_words, kLineBegin));
    load_chunk = loads.first_chunk(warp);
    window.place(a, loads.begin, lane);
    ahead.load(a, table, loads.begin + kWindow, loads.end, lane);
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

  // The next chunk of this warp into a place of the ring, if there is one.
  const auto issue = [&](int place) {
    while (load_chunk >= loads.end) {
      if (loads.left == 0) return;
      loads.next(a, lane);
      table = tables + joined(word_of(loads.words, kRowLow), word_of(loads.words, kRowHigh));
      load_chunk = loads.first_chunk(warp);
      window.load(a, table, loads.begin, loads.end, lane);
      ahead.load(a, table, loads.begin + kWindow, loads.end, lane);
    }
    if (load_chunk - window.first >= kWindow) {
      window = ahead;
      ahead.load(a, table, window.first + kWindow, loads.end, lane);
    }
    const int block = word_of(window.block, load_chunk - window.first), row = word_of(window.row, load_chunk - window.first);
    if (lane == 0) {
      cuda::Mbarrier& landed = barriers[place];
      char* const to = ring + place * 2 * kPlane;
      landed.expect(2 * kPlane);
      cuda::load_box(k_map, to, landed, 0, row, 0, loads.head, block);
      cuda::load_box(v_map, to + kPlane, landed, 0, row, 0, loads.head, block);
    }
    load_chunk += kWarps;
  };

  const int group_lane = lane / 4, pair = lane % 4;  // g and t of the fragments
  uint32_t q[kHead / 16][4];
  float o[kHead / 8][4], maximum[kSides], sum[kSides];
  Interval seen[kSides];
  int some_begin = 0, some_end = 0, all_begin = 0, all_end = 0;  // keys that a row sees, that every row sees
  const float factor = a.soft_cap != 0 ? kLog2e : a.softmax_scale * kLog2e;

  const auto open_unit = [&] {
    const int tokens = word_of(works.words, kTokens), first_row = word_of(works.words, kFirstRow);
    const int position = word_of(works.words, kFirstPosition), keys = word_of(works.words, kKeys);
    const bool causal = word_of(works.words, kIsCausal) != 0;
    some_begin = all_end = 0x7fffffff;
    some_end = all_begin = 0;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = group_lane + 8 * side, token = row / a.group;
      const bool used = side < kSides && token < tokens;
      const char* from = a.q.data + (static_cast<int64_t>(first_row) + token) * a.q.token_bytes +
                         (static_cast<int64_t>(works.head) * a.group + row % a.group) * a.q.head_bytes + pair * 4;
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i)
        q[i / 2][i % 2 * 2 + side] = used ? *reinterpret_cast<const uint32_t*>(from + i * 16) : 0;
      if (side >= kSides) continue;
      seen[side] = used ? visible(a.mask, causal, keys, position + token) : Interval{0, 0x7fffffff};
      if (used) {
        if (seen[side].begin < seen[side].end) some_begin = min(some_begin, seen[side].begin);
        some_end = max(some_end, seen[side].end);
        all_begin = max(all_begin, seen[side].begin);
        all_end = min(all_end, seen[side].end);
      }
      maximum[side] = -INFINITY;
      sum[side] = 0;
    }
    some_begin = __reduce_min_sync(~0u, some_begin);
    some_end = __reduce_max_sync(~0u, some_end);
    all_begin = __reduce_max_sync(~0u, all_begin);
    all_end = __reduce_min_sync(~0u, all_end);
#pragma unroll
    for (int i = 0; i < kHead / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[i][e] = 0;
  };

  const int tile = lane / 8, tile_row = lane % 8;  // of a matrix load
  const uint32_t k_lane = (tile / 2 * 8 + tile_row) * 128 + ((tile % 2 ^ tile_row) << 4);
  const uint32_t v_lane = (tile % 2 * 8 + tile_row) * 128 + ((tile / 2 ^ tile_row) << 4);

  const auto attend = [&](const char* keys_at, int chunk) {
    float s[2][2][4] = {};  // [parity of the step][half of the keys][fragment]
#pragma unroll
    for (int step = 0; step < kHead / 16; ++step) {
      uint32_t k[4];
      cuda::load_matrix(k, keys_at + step / 4 * (kPlane / kHalves) + (k_lane ^ step % 4 * 32));
      cuda::multiply_add<T>(s[step % 2][0], q[step], k[0], k[1]);
      cuda::multiply_add<T>(s[step % 2][1], q[step], k[2], k[3]);
    }
    const int first = chunk * kChunk + pair * 2;  // of this lane's keys: first + {0, 1, 8, 9}
    const bool masked = chunk * kChunk < all_begin || chunk * kChunk + kChunk > all_end;
    uint32_t owned[2] = {~0u, ~0u};  // V of keys that no row sees may be anything
    if (masked) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = first + half * 8;
        owned[half] = (key >= some_begin && key < some_end ? 0xffffu : 0) |
                      (key + 1 >= some_begin && key + 1 < some_end ? 0xffff0000u : 0);
      }
    }
    uint32_t p[4] = {};
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      float value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = s[0][i / 2][side * 2 + i % 2] + s[1][i / 2][side * 2 + i % 2];
      if (a.soft_cap != 0) {
        for (int i = 0; i < 4; ++i) value[i] = a.soft_cap * tanhf(value[i] * a.softmax_scale / a.soft_cap);
      }
      if (masked) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first + i / 2 * 8 + i % 2;
          if (key < seen[side].begin || key >= seen[side].end || key >= some_end) value[i] = -INFINITY;
        }
      }
      float top = fmaxf(fmaxf(value[0], value[1]), fmaxf(value[2], value[3]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top = fmaxf(top, maximum[side]);
      const float base = top == -INFINITY ? 0 : top * factor;
      const float shrink = cuda::exp2_fast(maximum[side] * factor - base);
      maximum[side] = top;
      float added = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[i] = cuda::exp2_fast(value[i] * factor - base);
        added += value[i];
      }
      sum[side] = sum[side] * shrink + added;
      p[side] = cuda::pack2<T>(value[0], value[1]);
      p[2 + side] = cuda::pack2<T>(value[2], value[3]);
      if (__any_sync(~0u, shrink != 1)) {
#pragma unroll
        for (int i = 0; i < kHead / 8; ++i) {
          o[i][side * 2] *= shrink;
          o[i][side * 2 + 1] *= shrink;
        }
      }
    }
#pragma unroll
    for (int step = 0; step < kHead / 16; ++step) {
      uint32_t v[4];
      cuda::load_matrix_transposed(v, keys_at + kPlane + step / 4 * (kPlane / kHalves) + (v_lane ^ step % 4 * 32));
      cuda::multiply_add<T>(o[2 * step], p, v[0] & owned[0], v[1] & owned[1]);
      cuda::multiply_add<T>(o[2 * step + 1], p, v[2] & owned[0], v[3] & owned[1]);
    }
  };

  int first_row = 0, head = 0;                                                              // of the unit that ends
  const auto write = [&](int row, int quad, float top, float total, const float4& value) {  // top in base 2
    const int64_t token = first_row + row / a.group;
    const int q_head = head * a.group + row % a.group;
    float scale = 1;
    if (a.sinks) {
      const float sink = a.sinks[q_head] * kLog2e, higher = fmaxf(top, sink);
      scale = top == -INFINITY ? 0 : cuda::exp2_fast(top - higher);
      total = (scale == 0 ? 0 : total * scale) + cuda::exp2_fast(sink - higher);
      top = higher;
    }
    const bool empty = top == -INFINITY;
    scale = empty ? 0 : scale / total;
    uint32_t* const to =
        reinterpret_cast<uint32_t*>(a.out.data + token * a.out.token_bytes + q_head * a.out.head_bytes + quad * 8);
    to[0] = cuda::pack2<T>(value.x * scale, value.y * scale);  // rows are aligned to a pair of elements
    to[1] = cuda::pack2<T>(value.z * scale, value.w * scale);
    if (quad == 0 && a.lse)
      a.lse[token * a.lse_token_stride + q_head * a.lse_head_stride] =
          empty ? -INFINITY : (top + __log2f(total)) * kLn2 * a.lse_factor;
  };
  const auto part = [&](int piece, int from_rank, int row) {  // of the unit that began in block from_rank
    return a.parts + (static_cast<int64_t>(2 * (from_rank + piece) + (piece == 0)) * a.rows + row) * (kHead + kPartPad);
  };
  const auto merge_pieces = [&](int pieces, int from_rank, int rows) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kQuads; i += kWarps * 32) {
      const int row = i / kQuads, quad = i % kQuads;
      float top = -INFINITY, total = 0;
      float4 value{0, 0, 0, 0};
      for (int first = 0; first < pieces; first += 8) {  // eight pieces are one wait
        float2 state[8];
        float4 output[8];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          state[n] = {-INFINITY, 0};
          output[n] = {0, 0, 0, 0};
          if (first + n >= pieces) continue;
          const float* from = part(first + n, from_rank, row);
          state[n] = __ldcg(reinterpret_cast<const float2*>(from + kHead));
          output[n] = __ldcg(reinterpret_cast<const float4*>(from + quad * 4));
        }
        float higher = top;
#pragma unroll
        for (int n = 0; n < 8; ++n) higher = fmaxf(higher, state[n].x);
        const float base = higher == -INFINITY ? 0 : higher, shrink = cuda::exp2_fast(top - base);
        top = higher;
        total *= shrink;
        value = {value.x * shrink, value.y * shrink, value.z * shrink, value.w * shrink};
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float weight = cuda::exp2_fast(state[n].x - base);
          total += weight * state[n].y;
          value.x += weight * output[n].x;
          value.y += weight * output[n].y;
          value.z += weight * output[n].z;
          value.w += weight * output[n].w;
        }
      }
      write(row, quad, top, total, value);
    }
  };
  // Warps meet; the unit is written, or its piece handed on.
  const auto finish = [&](int pieces, int piece, int from_rank) {
    const int rows = word_of(works.words, kTokens) * a.group;
    first_row = word_of(works.words, kFirstRow);
    head = works.head;
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      const int row = group_lane + 8 * side;
      sum[side] += __shfl_xor_sync(~0u, sum[side], 1);
      sum[side] += __shfl_xor_sync(~0u, sum[side], 2);
      if (sum[side] != sum[side]) maximum[side] = 0;  // NaN scores leave no maximum, and must show
      if (row >= rows) continue;
      if (pair == 0) states[warp * a.rows + row] = {maximum[side] * factor, sum[side]};
      if (maximum[side] == -INFINITY) continue;
      float* const to = staged + (warp * a.rows + row) * kPitch + pair * 2;
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i) *reinterpret_cast<float2*>(to + i * 8) = {o[i][side * 2], o[i][side * 2 + 1]};
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < rows * kQuads; i += kWarps * 32) {
      const int row = i / kQuads, quad = i % kQuads;
      float top = -INFINITY, total = 0;
      float4 value{0, 0, 0, 0};
#pragma unroll
      for (int n = 0; n < kWarps; ++n) top = fmaxf(top, states[n * a.rows + row].x);
#pragma unroll
      for (int n = 0; n < kWarps; ++n) {
        const float2 state = states[n * a.rows + row];
        if (state.x == -INFINITY) continue;
        const float weight = cuda::exp2_fast(state.x - top);
        const float4 more = *reinterpret_cast<const float4*>(staged + (n * a.rows + row) * kPitch + quad * 4);
        total += weight * state.y;
        value.x += weight * more.x;
        value.y += weight * more.y;
        value.z += weight * more.z;
        value.w += weight * more.w;
      }
      if (pieces == 1) {
        write(row, quad, top, total, value);
      } else {
        float* const to = part(piece, from_rank, row);
        __stcg(reinterpret_cast<float4*>(to + quad * 4), value);
        if (quad == 0) __stcg(reinterpret_cast<float2*>(to + kHead), float2{top, total});
      }
    }
    if (pieces > 1) {
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();  // for what the whole block has stored, since the barrier comes before
        ticket = atomicAdd(a.tickets + from_rank, 1u);
      }
      __syncthreads();
      if (ticket == static_cast<uint32_t>(pieces - 1)) {
        __threadfence();
        if (threadIdx.x == 0) a.tickets[from_rank] = 0;
        merge_pieces(pieces, from_rank, rows);
      }
    }
    __syncthreads();
  };

  int filling = a.depth, place = 0, chunk = 0;
  uint32_t parity = 1;  // the first time round only fills
  bool opened = false, first_unit = true;
  while (any) {
    if (filling > 0) {
      --filling;
    } else if (chunk < works.end) {
      barriers[place].wait(parity);
      attend(ring + place * 2 * kPlane, chunk);
      __syncwarp();
      chunk += kWarps;
    } else {
      if (opened) {
        const int first_pieces = word_of(line_words, kFirstPieces), from_rank = word_of(line_words, kFirstRank);
        const bool continued = first_unit && first_pieces > 1;
        const int pieces = continued ? first_pieces : works.left == 0 ? word_of(line_words, kLastPieces) : 1;
        finish(pieces, continued ? rank - from_rank : 0, continued ? from_rank : rank);
        if (works.left == 0) break;
        first_unit = false;
        works.next(a, lane);
      } else {
        works.open(a, word_of(line_words, kLineBegin));
      }
      opened = true;
      open_unit();
      chunk = works.first_chunk(warp);
      continue;
    }
    issue(place);
    if (++place == a.depth) {
      place = 0;
      parity ^= 1;
    }
  }
  const int unowned_end = word_of(line_words, kUnownedEnd), heads = a.num_kv_heads * a.group;
  for (int row = word_of(line_words, kUnownedBegin) + rank; row < unowned_end; row += static_cast<int>(gridDim.x)) {
    for (int i = static_cast<int>(threadIdx.x); i < heads * kQuads; i += kWarps * 32) {
      uint32_t* const to =
          reinterpret_cast<uint32_t*>(a.out.data + row * a.out.token_bytes + i / kQuads * a.out.head_bytes + i % kQuads * 8);
      to[0] = to[1] = 0;
      if (a.lse && i % kQuads == 0) a.lse[row * a.lse_token_stride + i / kQuads * a.lse_head_stride] = -INFINITY;
    }
  }
}

}  // namespace anyattn::flash::sm90
