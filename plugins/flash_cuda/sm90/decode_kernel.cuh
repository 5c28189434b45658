// SPDX-License-Identifier: Apache-2.0
// Decode on sm_90: each block works off a line of chunks, in one launch. Included by the units of decode_instances.txt.
//
// Every warp is a pipeline of its own: it takes every eighth (fourth) chunk of 16 keys, its copies come through the copy engine into
// its own ring, and it keeps its own maximum, sum and output (arXiv:2205.14135). Warps meet where a unit ends: all of a block, or each
// of two teams for itself, with a line each (decode_cut.cuh says when). Where both pieces of a unit are of one cluster of two blocks,
// the second stores its own into the shared memory of the first; other pieces meet in scratch, and the team that comes last merges
// them, in the order of the keys. What runs once a unit stands once in the text: code that is not in a multiprocessor's cache costs
// more than its instructions.
//   q [tokens of the unit x heads of the unit, 16 rows at most] | S = Q K^T: m16n8k16, n over keys | O += P V: k over keys
// Codes of 8 bits become float16, which holds them all; q is scaled by a power of 2 a row so that float16 holds it, and P by 2^15.
// Shared memory: ring of warps * depth * 16 * 2 rows (192 KiB at head size 128, 16 bits, depth 3; 35 bytes a nanosecond and
// multiprocessor, 1.2 us away, need 42 KiB), q where heads are wide, the outputs of the warps where they meet.
#pragma once

#include <type_traits>

#include "cuda_common/cluster.cuh"
#include "cuda_common/convert.cuh"
#include "cuda_common/launch.cuh"
#include "cuda_common/matrix.cuh"
#include "cuda_common/mma_sm80.cuh"
#include "cuda_common/softmax.cuh"
#include "cuda_common/ticket.cuh"
#include "cuda_common/tma.cuh"
#include "sm90/decode.h"
#include "sm90/decode_instance.cuh"
#include "sm90/decode_merge.cuh"
#include "sm90/decode_walk.cuh"

namespace anyattn::flash::sm90 {

template <class T, class Code, int kHead, bool kWide>
__global__ void __launch_bounds__(decode_tile(kHead).threads(), 1)
    decode(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
           const __grid_constant__ DecodeArgs a) {
  constexpr DecodeTile kTile = decode_tile(kHead);
  constexpr bool kCodes = sizeof(Code) == 1, kQueryShared = kTile.query_in_shared, kValuesEarly = kTile.values_early;
  constexpr int kWarps = kTile.warps, kThreads = kWarps * 32, kSides = kWide ? 2 : 1;
  constexpr int kRow = kHead * static_cast<int>(sizeof(Code)), kPlane = kChunk * kRow, kSegment = segment_bytes(kRow);
  constexpr int kPiecesAtOnce = kWide ? 4 : 8, kStagedAtOnce = kWide ? 3 : 5;  // sums that one wait brings a thread
  constexpr int kQuads = kHead / 4, kPitch = kHead + kStagePad;
  constexpr float kPScale = kCodes ? 15 : 0;  // log2
  using Product = std::conditional_t<kCodes, __half, T>;
  extern __shared__ char raw[];
  char* const shared = raw + (-cuda::shared_address(raw) & 1023);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // Where a block's two teams have lines of their own, the second's stand behind all the first's; where they are one, it reads a copy.
  const Line* const line_at = a.lines + (warp / kTeamWarps * gridDim.x + blockIdx.x);
  const int line_words = load_word(line_at, lane);
  Window window;
  window.block = load_word(line_at, 32 + lane);
  if (threadIdx.x == 0) {
    cuda::prefetch_map(k_map);
    cuda::prefetch_map(v_map);
  }
  char* const ring = shared + warp * a.depth * 2 * kPlane;
  uint4* const queries = reinterpret_cast<uint4*>(shared + kWarps * a.depth * 2 * kPlane);  // [step][lane]: fragments
  float* const staged = reinterpret_cast<float*>(shared + kWarps * a.depth * 2 * kPlane + kTile.query_bytes());
  float2* const states = reinterpret_cast<float2*>(staged + (kWarps + 1) * a.rows * kPitch);
  cuda::Mbarrier* const all_barriers = reinterpret_cast<cuda::Mbarrier*>(states + (kWarps + 1) * a.rows);
  cuda::Mbarrier* const barriers = all_barriers + warp * a.depth;
  __shared__ uint32_t tickets_drawn[kWarps / kTeamWarps];
  __shared__ cuda::Mbarrier other_landed;  // the piece of the cluster's other block
  if (lane < a.depth) barriers[lane].init(1);
  if (threadIdx.x == 0) other_landed.init(1);
  cuda::fence_mbarrier_init();
  __syncwarp();
  cuda::cluster_arrive();

  const int team_warps = kWarps == kTeamWarps ? kWarps : word_of(line_words, kWarpsOfTeam);
  const int team = team_warps == kWarps ? 0 : warp / kTeamWarps, first_warp = team * kTeamWarps;
  const int rank = static_cast<int>(team * gridDim.x + blockIdx.x), team_threads = team_warps * 32;
  const int thread = static_cast<int>(threadIdx.x) - first_warp * 32;  // of the team
  const auto meet = [&] { cuda::named_sync(1 + team, team_threads); };
  Walk loads, works;
  loads.begin_line(line_words);
  works.begin_line(line_words);
  const int32_t* const tables =
      reinterpret_cast<const int32_t*>(joined(word_of(line_words, kTableLow), word_of(line_words, kTableHigh)));
  const int unowned_begin = word_of(line_words, kUnownedBegin), unowned_end = word_of(line_words, kUnownedEnd);
  const int32_t* table = tables + joined(word_of(line_words, kRowLow), word_of(line_words, kRowHigh));
  int load_chunk = 0, kv_head = 0;
  Window ahead{0, -1, 0};
  const auto open_loads = [&] {
    load_chunk = loads.first_chunk(warp, team_warps);
    kv_head = a.slices == 1 ? loads.head : loads.head / a.slices;
    ahead.load(a, table, loads.begin + kWindow, loads.end, lane);
  };
  if (loads.left > 0) {
    loads.open(a, word_of(line_words, kLineBegin));
    window.place(a, loads.begin, lane);
    open_loads();
  }
  cuda::wait_for_launch_before();
  cuda::let_launch_behind_begin();

  const auto query_at = [&](int row_of_q, int token, int head_of_unit, int row) -> const char* {
    return a.q.data + (static_cast<int64_t>(row_of_q) + token) * a.q.token_bytes +
           (static_cast<int64_t>(head_of_unit) * a.group + row - token * a.group) * a.q.head_bytes;
  };
  // The next chunk of this warp into a place of the ring, if there is one.
  const auto issue = [&](int place) {
    while (load_chunk >= loads.end) {
      if (loads.left == 0) return;
      loads.next(a, lane);
      table = tables + joined(word_of(loads.words, kRowLow), word_of(loads.words, kRowHigh));
      window.load(a, table, loads.begin, loads.end, lane);
      open_loads();
    }
    if (load_chunk - window.first >= kWindow) {
      window = ahead;
      ahead.load(a, table, window.first + kWindow, loads.end, lane);
    }
    const int block = word_of(window.block, load_chunk - window.first), row = word_of(window.row, load_chunk - window.first);
    if (cuda::one_lane()) {
      cuda::Mbarrier& landed = barriers[place];
      char* const to = ring + place * 2 * kPlane;
      landed.expect(2 * kPlane);
      cuda::load_box(k_map, to, landed, 0, row, 0, kv_head, block);
      cuda::load_box(v_map, to + kPlane, landed, 0, row, 0, kv_head, block);
    }
    load_chunk += team_warps;
  };

  const int group_lane = lane / 4, pair = lane % 4;  // g and t of the fragments
  uint32_t q[kQueryShared ? 1 : kHead / 16][4];
  float o[kHead / 8][4], maximum[kSides], sum[kSides];
  float scale[2], factor[2], value_scale = 1;  // of a score, to the softmax and to its base 2
  Interval seen[kSides];
  int some_begin = 0, some_end = 0, all_begin = 0, all_end = 0;  // keys that a row sees, that every row sees

  // q's fragments; bfloat16 against codes as float16, the largest of a row in [2^14, 2^15): what is lost is 2^-39 of it.
  const auto load_query = [&](uint32_t(&to)[kHead / 16][4], int side, const char* from, bool used) -> float {
    float undo = 1;
#pragma unroll
    for (int i = 0; i < kHead / 16; ++i) {
      uint2 both{0, 0};
      if (used) {
        if constexpr (kCodes)
          both = *reinterpret_cast<const uint2*>(from + i * 32 + pair * 8);
        else
          both = {*reinterpret_cast<const uint32_t*>(from + i * 32 + pair * 4),
                  *reinterpret_cast<const uint32_t*>(from + i * 32 + 16 + pair * 4)};
      }
      to[i][side] = both.x;
      to[i][2 + side] = both.y;
    }
    if constexpr (kCodes && !std::is_same_v<T, __half>) {
      uint32_t most = 15u << 23;
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i) {
        const uint32_t two = to[i / 2][i % 2 * 2 + side] & 0x7fff7fffu;
        most = max(most, max(two << 16, two & 0xffff0000u));
      }
      most = max(most, __shfl_xor_sync(~0u, most, 1));
      most = max(most, __shfl_xor_sync(~0u, most, 2));
      const float up = __uint_as_float((268 - (most >> 23)) << 23);
      undo = __uint_as_float(((most >> 23) - 14) << 23);
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i) {
        uint32_t& two = to[i / 2][i % 2 * 2 + side];
        two = cuda::pack2<__half>(__uint_as_float(two << 16) * up, __uint_as_float(two & 0xffff0000u) * up);
      }
    }
    return undo;
  };
  const auto open_unit = [&] {
    const int tokens = word_of(works.words, kTokens), first_row = word_of(works.words, kFirstRow);
    const int position = word_of(works.words, kFirstPosition), keys = word_of(works.words, kKeys);
    const RowMask mask{a.mask, word_of(works.words, kIsCausal) != 0, keys};
    some_begin = all_end = 0x7fffffff;
    some_end = all_begin = 0;
    float key_scale = a.softmax_scale;
    if constexpr (kCodes) {
      const int scaled_head = a.scales_per_head ? works.head / a.slices : 0;
      if (a.k_scale) key_scale *= a.k_scale[scaled_head];
      if (a.v_scale) value_scale = a.v_scale[scaled_head];
    }
    uint32_t loaded[kQueryShared ? kHead / 16 : 1][4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = group_lane + 8 * side, token = row * a.inverse_group >> 8;
      const bool used = side < kSides && token < tokens;
      const char* const from = query_at(first_row, token, works.head, row);
      if constexpr (kQueryShared)
        scale[side] = key_scale * load_query(loaded, side, from, used);
      else
        scale[side] = key_scale * load_query(q, side, from, used);
      factor[side] = a.soft_cap != 0 ? cuda::kLog2e : scale[side] * cuda::kLog2e;
      if (side >= kSides) continue;
      seen[side] = used ? mask.seen(position + token) : Interval{0, 0x7fffffff};
      if (used) {
        if (seen[side].begin < seen[side].end) some_begin = min(some_begin, seen[side].begin);
        some_end = max(some_end, seen[side].end);
        all_begin = max(all_begin, seen[side].begin);
        all_end = min(all_end, seen[side].end);
      }
      maximum[side] = -INFINITY;
      sum[side] = 0;
    }
    if constexpr (kQueryShared) {  // each warp leaves its share; the unit before has been read
#pragma unroll
      for (int i = 0; i < kHead / 16; ++i)
        if (i % kWarps == warp) queries[i * 32 + lane] = {loaded[i][0], loaded[i][1], loaded[i][2], loaded[i][3]};
      __syncthreads();
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

  // Matrix loads: tile / 2 and tile % 2 are the half of the keys and the piece of 16 bytes, for V the other way round.
  constexpr int kPieces = kSegment / 16;  // a segment's row; the low bits of the row exchange them
  const int tile = lane / 8, tile_row = lane % 8;
  const auto lane_offset = [&](int row, int piece) { return row * kSegment + ((piece ^ row * kSegment / 128 % kPieces) << 4); };
  const int k_lane = lane_offset(tile / 2 * 8 + tile_row, tile % 2), v_lane = lane_offset(tile % 2 * 8 + tile_row, tile / 2);
  const auto at = [](const char* plane, int lane_at, int step) {  // of 32 bytes of the rows
    return plane + 2 * step / kPieces * (kChunk * kSegment) + (lane_at ^ 2 * step % kPieces * 16);
  };
  const auto query = [&](int step, uint32_t(&to)[4]) {
    if constexpr (kQueryShared) {
      const uint4 all = queries[step * 32 + lane];
      to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = q[step][i];
    }
  };

  const auto attend = [&](const char* keys_at, int chunk) {
    float s[2][2][4] = {};  // [parity of the step][half of the keys][fragment]
#pragma unroll
    for (int step = 0; step < kRow / 32; ++step) {
      uint32_t k[4], row[4];
      cuda::load_matrix(k, at(keys_at, k_lane, step));
      if constexpr (kCodes) {  // a lane's four codes of a key are the two pairs of a step: dims 4 t to 4 t + 3 of 16
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          query(2 * step + e, row);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint2 wide = cuda::widen_four_e4m3(k[2 * half + e]);
            cuda::multiply_add<Product>(s[e][half], row, wide.x, wide.y);
          }
        }
      } else {
        query(step, row);
        cuda::multiply_add<Product>(s[step % 2][0], row, k[0], k[1]);
        cuda::multiply_add<Product>(s[step % 2][1], row, k[2], k[3]);
      }
    }
    uint32_t v[kValuesEarly ? kRow / 32 : 1][4];  // asked for before the softmax, where registers allow it
    if constexpr (kValuesEarly) {
#pragma unroll
      for (int step = 0; step < kRow / 32; ++step) cuda::load_matrix_transposed(v[step], at(keys_at + kPlane, v_lane, step));
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
      if constexpr (kValuesEarly) {
#pragma unroll
        for (int step = 0; step < kRow / 32; ++step)
#pragma unroll
          for (int i = 0; i < 4; ++i) v[step][i] &= owned[i % 2];
      }
    }
    uint32_t p[4] = {};
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      float value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = s[0][i / 2][side * 2 + i % 2] + s[1][i / 2][side * 2 + i % 2];
      if (a.soft_cap != 0) {
        const float doubled = 2 * cuda::kLog2e / a.soft_cap;
#pragma unroll
        for (int i = 0; i < 4; ++i) value[i] = cuda::soft_capped(value[i] * scale[side] * doubled, a.soft_cap);
      }
      if (masked) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first + i / 2 * 8 + i % 2;
          if (key < seen[side].begin || key >= seen[side].end || key >= some_end) value[i] = -INFINITY;
        }
      }
      float top = fmaxf(fmaxf(value[0], value[1]), fmaxf(value[2], value[3]));
      top = fmaxf(cuda::quad_max(top), maximum[side]);
      const float base = top == -INFINITY ? 0 : top * factor[side];
      const float shrink = cuda::exp2_fast(maximum[side] * factor[side] - base);
      maximum[side] = top;
      float added = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[i] = cuda::exp2_fast(value[i] * factor[side] - (base - kPScale));
        added += value[i];
      }
      sum[side] = sum[side] * shrink + added;
      p[side] = cuda::pack2<Product>(value[0], value[1]);
      p[2 + side] = cuda::pack2<Product>(value[2], value[3]);
      if (__any_sync(~0u, shrink != 1)) {
#pragma unroll
        for (int i = 0; i < kHead / 8; ++i) {
          o[i][side * 2] *= shrink;
          o[i][side * 2 + 1] *= shrink;
        }
      }
    }
#pragma unroll
    for (int step = 0; step < kRow / 32; ++step) {
      uint32_t(&own)[4] = v[kValuesEarly ? step : 0];
      if constexpr (!kValuesEarly) {
        cuda::load_matrix_transposed(own, at(keys_at + kPlane, v_lane, step));
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] &= owned[i % 2];
      }
      if constexpr (kCodes) {  // a lane's codes: two keys, of each the dims 2 g and 2 g + 1 of 16, which take a product each
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint2 low = cuda::widen_four_e4m3(__byte_perm(own[2 * e], 0, 0x3120));
          const uint2 high = cuda::widen_four_e4m3(__byte_perm(own[2 * e + 1], 0, 0x3120));
          cuda::multiply_add<Product>(o[4 * step + 2 * e], p, low.x, high.x);
          cuda::multiply_add<Product>(o[4 * step + 2 * e + 1], p, low.y, high.y);
        }
      } else {
        cuda::multiply_add<Product>(o[2 * step], p, own[0], own[1]);
        cuda::multiply_add<Product>(o[2 * step + 1], p, own[2], own[3]);
      }
    }
  };

  int first_row = 0, head = 0;  // of the unit that ends
  const auto write = [&](int row, int quad, float top, float total, const float4& value) {
    const int in_unit = row * a.inverse_group >> 8, q_head = head * a.group + row - in_unit * a.group;
    const int64_t token = first_row + in_unit;
    write_row(a, token, q_head, value_scale, quad, top, total, value);
  };
  const auto part = [&](int piece, int from_line) {  // of the unit that began in from_line
    return a.parts + static_cast<int64_t>(2 * (from_line + piece) + (piece == 0)) * a.rows * (kHead + kPartPad);
  };
  const auto stage = [&](int i, int row) { return staged + (i * a.rows + row) * kPitch; };
  enum class Sums { kStaged, kPieces };
  enum class To { kOut, kScratch, kCluster };
  // Each row of the unit, summed up: what `count` warps (the last may be the cluster's other block) have staged, or its pieces in scratch
  // from `scratch` on, those of a place shared out among neighbouring lanes. `scratch` is also where a piece goes.
  const auto combine = [&](Sums sums, int count, int rows, To to, float* scratch) {
    const int places = rows * kQuads;
    int shift = 0, last = places;  // 1 << shift lanes a place
    if (sums == Sums::kPieces) {
      while (shift < 5 && places << (shift + 1) <= team_threads) ++shift;
      last = ((places << shift) + 31) / 32 * 32;  // whole warps
    }
#pragma unroll 1
    for (int i = thread; i < last; i += team_threads) {
      const int share = i & (1 << shift) - 1, place = i >> shift, row = place / kQuads, quad = place % kQuads;
      float top = -INFINITY, total = 0;
      float4 value{0, 0, 0, 0};
      if (sums == Sums::kStaged) {
#pragma unroll 1
        for (int first = 0; first < count; first += kStagedAtOnce) {
          float2 state[kStagedAtOnce];
          float4 more[kStagedAtOnce];
#pragma unroll
          for (int n = 0; n < kStagedAtOnce; ++n) {
            const int at = min(first + n, count - 1), from = at < team_warps ? first_warp + at : kWarps;
            state[n] = states[from * a.rows + row];
            more[n] = *reinterpret_cast<const float4*>(stage(from, row) + quad * 4);
            if (first + n >= count) state[n] = {-INFINITY, 0};
          }
          take_in(state, more, top, total, value);
        }
      } else {
        const float* from = scratch + row * (kHead + kPartPad);
#pragma unroll 1
        for (int first = share; first - share < count; first += kPiecesAtOnce << shift) {
          float2 state[kPiecesAtOnce];
          float4 more[kPiecesAtOnce];
#pragma unroll
          for (int n = 0; n < kPiecesAtOnce; ++n) {
            state[n] = {-INFINITY, 0};
            more[n] = {0, 0, 0, 0};
            const int piece = first + (n << shift);
            if (piece >= count || place >= places) continue;
            const float* const at = from + (piece == 0 ? 1 : 2 * piece) * a.rows * (kHead + kPartPad);
            state[n] = __ldcg(reinterpret_cast<const float2*>(at + kHead));
            more[n] = __ldcg(reinterpret_cast<const float4*>(at + quad * 4));
          }
          take_in(state, more, top, total, value);
        }
#pragma unroll 1
        for (int other = 1; other < 1 << shift; other *= 2) {
          const float higher = fmaxf(top, __shfl_xor_sync(~0u, top, other)), base = higher == -INFINITY ? 0 : higher;
          const float weight = cuda::exp2_fast(top - base);
          top = higher;
          const auto add = [&](float& sum) {
            sum *= weight;
            sum += __shfl_xor_sync(~0u, sum, other);
          };
          add(total), add(value.x), add(value.y), add(value.z), add(value.w);
        }
        if (share != 0 || place >= places) continue;
      }
      if (to == To::kScratch) {
        float* const at = scratch + row * (kHead + kPartPad);
        __stcg(reinterpret_cast<float4*>(at + quad * 4), value);
        if (quad == 0) __stcg(reinterpret_cast<float2*>(at + kHead), float2{top, total});
      } else if (to == To::kOut) {
        write(row, quad, top, total, value);
      } else {
        const auto there = [&](const void* here) { return cuda::address_in(cuda::shared_address(here), 0); };
        cuda::store_in(there(stage(kWarps, row) + quad * 4), value, there(&other_landed));
        if (quad == 0) cuda::store_in(there(states + kWarps * a.rows + row), float2{top, total}, there(&other_landed));
      }
    }
  };
  // Warps meet; the unit is written, or its piece handed on.
  const auto finish = [&](int pieces, int piece, int from_line) {
    const int rows = word_of(works.words, kTokens) * a.group;
    first_row = word_of(works.words, kFirstRow);
    head = works.head;
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      const int row = group_lane + 8 * side;
      sum[side] = cuda::quad_sum(sum[side]);
      if (sum[side] != sum[side]) maximum[side] = 0;  // NaN scores leave no maximum, and must show
      if (row >= rows) continue;
      if (pair == 0) states[warp * a.rows + row] = {maximum[side] * factor[side] - kPScale, sum[side]};
      if (maximum[side] == -INFINITY) {
#pragma unroll
        for (auto& tile : o) tile[side * 2] = tile[side * 2 + 1] = 0;
      }
      float* const to = stage(warp, row);
#pragma unroll
      for (int i = 0; i < kHead / 8; i += 2) {
        if constexpr (kCodes) {
          *reinterpret_cast<float4*>(to + i * 8 + pair * 4) = {o[i][side * 2], o[i + 1][side * 2], o[i][side * 2 + 1],
                                                               o[i + 1][side * 2 + 1]};
        } else {
          *reinterpret_cast<float2*>(to + i * 8 + pair * 2) = {o[i][side * 2], o[i][side * 2 + 1]};
          *reinterpret_cast<float2*>(to + i * 8 + 8 + pair * 2) = {o[i + 1][side * 2], o[i + 1][side * 2 + 1]};
        }
      }
    }
    // The pieces of a cluster, of its blocks' first teams.
    const bool joins = pieces == 2 && from_line % 2 == 0 && from_line < static_cast<int>(gridDim.x);
    Sums sums = Sums::kStaged;
    int count = team_warps;
    To to = pieces == 1 || (joins && piece == 0) ? To::kOut : joins ? To::kCluster : To::kScratch;
    float* scratch = part(piece, from_line);
    if (joins && piece == 0) {
      ++count;
      if (thread == 0) other_landed.expect(static_cast<uint32_t>(rows) * (kHead * sizeof(float) + sizeof(float2)));
      other_landed.wait(0);
    }
    meet();
#pragma unroll 1
    for (;;) {
      combine(sums, count, rows, to, scratch);
      if (to != To::kScratch) break;
      meet();
      if (thread == 0) tickets_drawn[team] = cuda::take_ticket(a.tickets + from_line);
      meet();
      if (tickets_drawn[team] != static_cast<uint32_t>(pieces - 1)) break;
      if (thread == 0) a.tickets[from_line] = 0;
      sums = Sums::kPieces;
      count = pieces;
      to = To::kOut;
      scratch = a.parts + static_cast<int64_t>(2 * from_line) * a.rows * (kHead + kPartPad);
    }
    meet();
  };

  int filling = a.depth, place = 0, chunk = 0;
  uint32_t parity = 1;  // the first time round only fills
  bool opened = false, first_unit = true;
  for (;;) {
    if (filling > 0) {
      --filling;
    } else if (chunk < works.end) {
      barriers[place].wait(parity);
      attend(ring + place * 2 * kPlane, chunk);
      __syncwarp();
      chunk += team_warps;
    } else {
      if (opened) {
        const int first_pieces = word_of(line_words, kFirstPieces);
        const int from_line = first_unit && first_pieces > 1 ? word_of(line_words, kFirstLine) : rank;
        const int pieces = from_line != rank ? first_pieces : works.left == 0 ? word_of(line_words, kLastPieces) : 1;
        finish(pieces, rank - from_line, from_line);
      }
      if (!opened) cuda::cluster_wait();
      if (works.left == 0) break;
      first_unit = !opened;
      if (opened)
        works.next(a, lane);
      else
        works.open(a, word_of(line_words, kLineBegin));
      opened = true;
      open_unit();
      chunk = works.first_chunk(warp, team_warps);
      continue;
    }
    issue(place);
    if (++place == a.depth) {
      place = 0;
      parity ^= 1;
    }
  }
#pragma unroll 1
  for (int row = unowned_begin + static_cast<int>(blockIdx.x); row < unowned_end; row += static_cast<int>(gridDim.x)) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < a.num_heads * a.group * kQuads; i += kThreads) {
      store_out(a, row, i / kQuads, i % kQuads, {0, 0, 0, 0});
      if (a.lse && i % kQuads == 0) a.lse[row * a.lse_token_stride + i / kQuads * a.lse_head_stride] = -INFINITY;
    }
  }
}

template <class T, class Code, int kHead>
DecodeKernel DecodeInstance<T, Code, kHead>::kernel(bool wide) {
  return wide ? decode<T, Code, kHead, true> : decode<T, Code, kHead, false>;
}

}  // namespace anyattn::flash::sm90
