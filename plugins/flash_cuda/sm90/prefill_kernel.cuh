// SPDX-License-Identifier: Apache-2.0
// Prefill on Hopper: warps feed K and V tiles by bulk copies, warp groups of 64 rows each multiply them by wgmma. While one group
// does its softmax another one has the matrix unit. Included by the instances; the host side is prefill.cu.
//   q [tokens, num_q_heads, head_size] | k, v [blocks, ...] or [keys, num_kv_heads, ...] | out [tokens, num_q_heads, head_size_v]
// A row of the tile is (token, query head): `pack` heads that share a kv head lie side by side, so a short query fills a tile.
// Source: FlashAttention-3, arXiv:2407.08608 (order of products and softmax, the turn of the warp groups,
// V of codes turned in shared memory).
#pragma once

#include <cstddef>

#include "cuda_common/codes.cuh"
#include "cuda_common/convert.cuh"
#include "cuda_common/matrix.cuh"
#include "cuda_common/wgmma.cuh"
#include "flash_cuda/sm90/prefill_instance.cuh"
#include "flash_cuda/sm90/prefill_parts.cuh"
#include "flash_cuda/sm90/prefill_transpose.cuh"

namespace anyattn::flash {

// The sizes of a tile as constants that device code may name.
template <PrefillTile kTile>
struct PrefillSizes {
  static constexpr int kGroups = kTile.groups(), kThreads = kTile.threads(), kChunks = kTile.chunks(),
                       kChunksV = kTile.chunks_v(), kSharedBytes = kTile.shared_bytes(), kTurnedBytes = kTile.turned_bytes();
};

template <PrefillTile kTile>
struct PrefillShared {
  unsigned char q[PrefillSizes<kTile>::kChunks * kTile.rows * 128];  // [chunk][row][128 bytes], swizzled
  unsigned char k[kTile.stages][PrefillSizes<kTile>::kChunks * kTile.keys * 128];
  unsigned char v[kTile.stages][PrefillSizes<kTile>::kChunksV * kTile.keys * 128];
  unsigned char turned[kTile.stages][PrefillSizes<kTile>::kTurnedBytes];  // V of codes, see prefill_transpose.cuh
  cuda::Mbarrier q_full, q_empty, k_full[kTile.stages], k_empty[kTile.stages], v_full[kTile.stages], v_empty[kTile.stages],
      turned_full[kTile.stages], turned_empty[kTile.stages];
};

// Rows past the last key of the request may hold NaN, and 0 * NaN is NaN: they become 0. Both groups write the same zeros.
template <PrefillTile kTile>
__device__ __forceinline__ void prefill_clear_tail(unsigned char* v, int valid) {
  const int count = (kTile.keys - valid) * 8;  // 16-byte pieces a chunk; a row keeps its place under the swizzle
  for (int chunk = 0; chunk < PrefillSizes<kTile>::kChunksV; chunk++) {
    auto* to = reinterpret_cast<uint4*>(v + (chunk * kTile.keys + valid) * 128);
    for (int i = threadIdx.x % 128; i < count; i += 128) to[i] = uint4{0, 0, 0, 0};
  }
  cuda::fence_async_shared();
}

// The quad's threads hold 2 columns each of 4 column groups of 8; afterwards each holds the 8 columns of one group.
__device__ __forceinline__ uint4 quad_transpose(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? x0 : x1, 1), b = __shfl_xor_sync(0xffffffffu, odd ? x2 : x3, 1);
  const uint32_t a0 = odd ? a : x0, a1 = odd ? x1 : a, b0 = odd ? b : x2, b1 = odd ? x3 : b;
  const uint32_t c0 = __shfl_xor_sync(0xffffffffu, high ? a0 : b0, 2), c1 = __shfl_xor_sync(0xffffffffu, high ? a1 : b1, 2);
  return high ? uint4{c0, c1, b0, b1} : uint4{a0, a1, c0, c1};
}

template <class Element, PrefillTile kTile>
struct PrefillConsumer {
  static constexpr bool kCodes = kTile.codes();
  static constexpr bool kTurns = !kCodes;               // at the matrix unit: with 8 bits it has time for all groups
  static constexpr bool kOverlaps = !kCodes;            // a store and the next work's first scores: codes have no need
  static constexpr int kStepSize = 32 / kTile.element;  // elements that one product takes along its sum
  static constexpr int kPartSize = kTile.head_size_v > 128 ? 128 : kTile.head_size_v;  // O columns a product
  static constexpr int kParts = kTile.head_size_v / kPartSize;
  using Qk = cuda::Wgmma<Element, kTile.keys>;
  using Pv = cuda::Wgmma<Element, kPartSize>;

  using Shared = PrefillShared<kTile>;
  using Count = TileCount<kTile.stages>;
  // Codes lie best between 2^-6 and 448: exponentials of codes reach 2^8.
  static constexpr int kLift = kCodes ? 6 : 0;
  using Softmax = cuda::OnlineSoftmax<kLift, kCodes ? 2 : 8>;
  static constexpr size_t kValuesFull = kCodes ? offsetof(Shared, turned_full) : offsetof(Shared, v_full),
                          kValuesEmpty = kCodes ? offsetof(Shared, turned_empty) : offsetof(Shared, v_empty);

  Shared& shared;
  const PrefillArgs& args;
  const int group;      // of 64 rows, uniform in the warp
  const uint32_t base;  // address of shared, hidden from the compiler, which would compute it anew in every turn
  float s[kTile.keys / 2];
  uint32_t q[kTile.q_in_registers ? kTile.head_size / 16 : 1][4];
  uint32_t p[kTile.keys / kStepSize][4];
  float o[kParts][kPartSize / 2];

  // Q [64, head_size] as operand fragments: K alone is then read from shared memory, whose ports a product of two shared
  // operands nearly fills.
  __device__ __forceinline__ void load_q() {
    const int lane = threadIdx.x % 32, row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < kTile.head_size / 16; i++) {
      const int piece = (i % 4 * 2 + lane / 16) ^ (row & 7);  // of 16 bytes, under the swizzle
      const uint32_t from = base + offsetof(Shared, q) + (i / 4 * kTile.rows + row) * 128 + piece * 16;
      cuda::load_matrix(q[i], from);
    }
  }
  __device__ __forceinline__ void wait(size_t barrier, const Count& tile) const {
    cuda::Mbarrier::wait(base + barrier + tile.stage * sizeof(cuda::Mbarrier), tile.phase);
  }
  __device__ __forceinline__ void release(size_t barrier, const Count& tile) const {
    if (threadIdx.x % 128 == 0) cuda::Mbarrier::arrive(base + barrier + tile.stage * sizeof(cuda::Mbarrier));
  }

  // s = Q K^T: [64, keys]
  __device__ __forceinline__ void multiply_qk(int stage) {
    const uint64_t b = cuda::operand(base + offsetof(Shared, k) + stage * sizeof(Shared::k[0]), 16, 1024);
    const uint64_t a = cuda::operand(base + offsetof(Shared, q) + group * 64 * 128, 16, 1024);
#pragma unroll
    for (int i = 0; i < kTile.head_size / kStepSize; i++) {
      const uint64_t piece = b + (i / 4 * kTile.keys * 128 + i % 4 * 32) / 16;
      if constexpr (kTile.q_in_registers)
        Qk::template rs<0>(s, q[i], piece, i > 0);
      else
        Qk::ss(s, a + (i / 4 * kTile.rows * 128 + i % 4 * 32) / 16, piece, i > 0);
    }
    cuda::wgmma_commit();
  }
  // o += P V: [64, head_size_v]
  __device__ __forceinline__ void multiply_pv(int stage) {
    if constexpr (kCodes) {
      const uint64_t b = cuda::operand(base + offsetof(Shared, turned) + stage * sizeof(Shared::turned[0]), 16, 1024);
#pragma unroll
      for (int i = 0; i < kTile.keys / kStepSize; i++) Pv::rs(o[0], p[i], b + i * 32 / 16, 1);
    } else {
      const uint64_t b = cuda::operand(base + offsetof(Shared, v) + stage * sizeof(Shared::v[0]), kTile.keys * 128, 1024);
#pragma unroll
      for (int i = 0; i < kTile.keys / 16; i++) {
#pragma unroll
        for (int part = 0; part < kParts; part++)
          Pv::template rs<1>(o[part], p[i], b + (part * 2 * kTile.keys * 128 + i * 16 * 128) / 16, 1);
      }
    }
    cuda::wgmma_commit();
  }
  __device__ __forceinline__ void pin_scores() { cuda::pin(s); }
  __device__ __forceinline__ void pin_output() {
#pragma unroll
    for (int part = 0; part < kParts; part++) cuda::pin(o[part]);
  }
  // Soft cap, in units of the cap.
  __device__ __forceinline__ void cap(float cap_log2) {
#pragma unroll
    for (int i = 0; i < kTile.keys / 2; i++) s[i] = cuda::soft_capped(s[i] * cap_log2);
  }
  // Of codes a thread's four are those of keys 2 quad, + 1, + 8, + 9 of sixteen, the order in which V's were turned.
  __device__ __forceinline__ void pack_p() {
#pragma unroll
    for (int i = 0; i < kTile.keys / kStepSize; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if constexpr (kCodes) {
          const float* x = s + 16 * i + e / 2 * 8 + e % 2 * 2;
          p[i][e] = cuda::pack4_e4m3(x[0], x[1], x[4], x[5]);
        } else {
          p[i][e] = cuda::pack2<Element>(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]);
        }
      }
    }
  }
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int part = 0; part < kParts; part++) {
#pragma unroll
      for (int i = 0; i < kPartSize / 2; i++) o[part][i] *= factor[i / 2 % 2];
    }
  }

  // What a work's scores and sums are multiplied by.
  struct Factors {
    float scale_log2, cap_log2, value;
  };
  __device__ __forceinline__ Factors factors(int head) const {
    Factors to{args.scale_log2, args.cap_log2, 1};
    if constexpr (!kCodes) return to;
    const int kv_head = head / args.kv_ratio, of_cache = args.kv_scales_per_head ? kv_head : 0;
    float score = args.q_scale[args.q_scales_per_head ? kv_head : 0];
    if (args.k_scale != nullptr) score *= args.k_scale[of_cache];
    if (args.v_scale != nullptr) to.value = args.v_scale[of_cache];
    (args.cap_log2 != 0 ? to.cap_log2 : to.scale_log2) *= score;
    return to;
  }

  // The next work of this block that sees a key, once its Q and its last tile of K are there; others are cleared.
  __device__ __forceinline__ bool begin(Deal& deal, PrefillWork& work, int& head, const Count& count, uint32_t q_phase,
                                        const int (&token)[2], const int (&pack_head)[2]) {
    while (deal.next(args.header, work, head)) {
      if (work.first_tile < work.end_tile) {
        shared.q_full.wait(q_phase);
        wait(offsetof(Shared, k_full), count);
        return true;
      }
      clear(work, head, token, pack_head);
    }
    return false;
  }
  // Scores of a work's last tile, on their way once this returns.
  __device__ __forceinline__ void first_scores(const Count& count) {
    if constexpr (kTile.q_in_registers) {
      load_q();
      shared.q_empty.arrive();
    }
    pin_scores();
    cuda::wgmma_fence();
    multiply_qk(count.stage);
  }

  __device__ __forceinline__ void run() {
    const int lane = threadIdx.x % 32;
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // and row + 8
    const int token[2] = {row / args.pack, (row + 8) / args.pack};
    const int pack_head[2] = {row % args.pack, (row + 8) % args.pack};
    Count count;
    uint32_t q_phase = 0;
    Deal deal(args);
    PrefillWork work, following;
    int head, following_head;
    if (kTurns && group == PrefillSizes<kTile>::kGroups - 1) cuda::named_arrive(1, 256);  // the turn begins at group 0
    if (!begin(deal, work, head, count, q_phase, token, pack_head)) return;
    first_scores(count);
    for (bool more = true; more; work = following, head = following_head) {
      q_phase ^= 1;
      const Factors by = factors(head);
      Softmax softmax;
#pragma unroll
      for (int part = 0; part < kParts; part++) {
#pragma unroll
        for (int i = 0; i < kPartSize / 2; i++) o[part][i] = 0;
      }
      walk(work, Band(work, args, token, 2 * (lane % 4)), by, count, softmax);
      multiply_last(count);
      const Count last = count;
      count.advance();
      if constexpr (kOverlaps) {
        more = begin(deal, following, following_head, count, q_phase, token, pack_head);
        first_scores(count);  // of nothing where no work follows: ptxas serialises two ways on from a product
        cuda::wgmma_wait<1>();
      } else {
        cuda::wgmma_wait<0>();
      }
      store(work, head, by, token, pack_head, softmax, last);
      if constexpr (!kOverlaps) {
        if (!begin(deal, following, following_head, count, q_phase, token, pack_head)) return;
        first_scores(count);
      }
    }
    cuda::wgmma_wait<0>();
  }

  // P V of a work's first tile, on its way once this returns.
  __device__ __forceinline__ void multiply_last(const Count& count) {
    wait(kValuesFull, count);
    pin_output();
    cuda::wgmma_fence();
    multiply_pv(count.stage);
  }

  // All tiles of a work, the scores of the last one being on their way; but P V of its first tile, which `count` is then.
  __device__ __forceinline__ void walk(const PrefillWork& work, const Band& band, const Factors& by, Count& count,
                                       Softmax& softmax) {
    float factor[2];
    int tile = work.end_tile - 1;
    cuda::wgmma_wait<0>();
    pin_scores();
    release(offsetof(Shared, k_empty), count);
    if (args.cap_log2 != 0) cap(by.cap_log2);
    if (band.template needed<kTile.keys>(tile)) band.template apply<kTile.keys>(s, tile);
    softmax.step(s, by.scale_log2, factor);
    pack_p();
    const int valid = work.seq_len - tile * kTile.keys;
    if (!kCodes && valid < kTile.keys) {
      wait(kValuesFull, count);
      prefill_clear_tail<kTile>(shared.v[count.stage], valid);
      cuda::named_sync(8 + group, 128);
    }
    for (tile--; tile >= work.first_tile; tile--) {
      auto next = count;
      next.advance();
      wait(offsetof(Shared, k_full), next);
      if constexpr (kTurns) cuda::named_sync(1 + group, 256);  // this group's turn at the matrix unit
      pin_scores();
      pin_output();
      cuda::wgmma_fence();
      multiply_qk(next.stage);
      wait(kValuesFull, count);
      cuda::wgmma_fence();
      multiply_pv(count.stage);
      if constexpr (kTurns) cuda::named_arrive(1 + (group + 1) % PrefillSizes<kTile>::kGroups, 256);
      cuda::wgmma_wait<1>();
      pin_scores();
      release(offsetof(Shared, k_empty), next);
      if (args.cap_log2 != 0) cap(by.cap_log2);
      if (band.template needed<kTile.keys>(tile)) band.template apply<kTile.keys>(s, tile);
      const bool grew = softmax.step(s, by.scale_log2, factor);
      pin_scores();
      // A branch, because ptxas would move the wait ahead of the exponentials, which belong under the product.
      if (grew) {
        cuda::wgmma_wait<0>();
        pin_output();
        rescale(factor);
      }
      cuda::wgmma_wait<0>();
      pin_output();
      release(kValuesEmpty, count);
      pack_p();
      count = next;
    }
    if constexpr (!kTile.q_in_registers) shared.q_empty.arrive();
  }

  // A work that sees no key: out = 0, lse that of the sink.
  __device__ __forceinline__ void clear(const PrefillWork& work, int head, const int (&token)[2], const int (&pack_head)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = token[r], q_head = head * args.pack + pack_head[r];
      if (row >= work.tokens) continue;
      if (threadIdx.x % 4 == 0) RowEnd(args, work, 0, 0, q_head).store_lse(args, work.token + row, q_head);
      char* out = args.out.data + (work.token + row) * args.out.token_bytes + q_head * args.out.head_bytes;
      for (int column = threadIdx.x % 4 * 8; column < args.head_size_v; column += 32)
        *reinterpret_cast<uint4*>(out + column * 2) = uint4{0, 0, 0, 0};
    }
  }

  // Once P V of tile `last` is done: out = o / sum, lse = log(sum) + base; both with the sink in the sum.
  __device__ __forceinline__ void store(const PrefillWork& work, int head, const Factors& by, const int (&token)[2],
                                        const int (&pack_head)[2], const Softmax& softmax, const Count& last) {
    pin_output();
    release(kValuesEmpty, last);
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int q_head = head * args.pack + pack_head[r];
      const RowEnd end(args, work, cuda::quad_sum(softmax.total[r]), softmax.base[r] * by.scale_log2 - kLift, q_head);
      const bool mine = token[r] < work.tokens;
      if (quad == 0 && mine) end.store_lse(args, work.token + token[r], q_head);
      char* out = args.out.data + (work.token + token[r]) * args.out.token_bytes + q_head * args.out.head_bytes;
      if constexpr (kCodes)
        store_turned(out, r, end.scale * by.value, mine);
      else
        store_row(out, r, end.scale, mine);
    }
  }
  // Threads of a quad write 16 bytes each.
  __device__ __forceinline__ void store_row(char* out, int r, float scale, bool mine) {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int part = 0; part < kParts; part++) {
#pragma unroll
      for (int i = 0; i < kPartSize / 32; i++) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float* pair = &o[part][4 * (4 * i + j) + 2 * r];
          x[j] = cuda::pack2<Element>(pair[0] * scale, pair[1] * scale);
        }
        const uint4 eight = quad_transpose(x[0], x[1], x[2], x[3]);
        const int column = part * kPartSize + (4 * i + quad) * 8;
        if (mine && column < args.head_size_v) *reinterpret_cast<uint4*>(out + column * 2) = eight;
      }
    }
  }
  // Rows of V that was turned are its even columns, then its odd ones, of each sixteen: a thread holds four neighbours.
  __device__ __forceinline__ void store_turned(char* out, int r, float scale, bool mine) {
#pragma unroll
    for (int i = 0; i < kTile.head_size_v / 16; i++) {
      const float *even = o[0] + 8 * i + 2 * r, *odd = even + 4;
      const float x[4] = {even[0] * scale, odd[0] * scale, even[1] * scale, odd[1] * scale};
      const uint2 four = args.out_dtype == kBF16
                             ? uint2{cuda::pack2<__nv_bfloat16>(x[0], x[1]), cuda::pack2<__nv_bfloat16>(x[2], x[3])}
                             : uint2{cuda::pack2<__half>(x[0], x[1]), cuda::pack2<__half>(x[2], x[3])};
      const int column = 16 * i + threadIdx.x % 4 * 4;
      if (mine && column < args.head_size_v) *reinterpret_cast<uint2*>(out + column * 2) = four;
    }
  }
};

template <class Element, int kRow>
__global__ void __launch_bounds__(PrefillSizes<kPrefillTiles[kRow]>::kThreads, 1)
    prefill(const __grid_constant__ PrefillMaps maps, const __grid_constant__ PrefillArgs args) {
  constexpr PrefillTile kTile = kPrefillTiles[kRow];
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<PrefillShared<kTile>*>(bytes);
  static_assert(sizeof(PrefillShared<kTile>) <= PrefillSizes<kTile>::kSharedBytes);
  if (threadIdx.x == 0) {
    shared.q_full.init(1);
    shared.q_empty.init(PrefillSizes<kTile>::kGroups * 128);
    for (int i = 0; i < kTile.stages; i++) {
      shared.k_full[i].init(1);
      shared.v_full[i].init(1);
      shared.k_empty[i].init(PrefillSizes<kTile>::kGroups);
      shared.v_empty[i].init(kTile.codes() ? kTransposers : PrefillSizes<kTile>::kGroups);
      shared.turned_full[i].init(kTransposers);
      shared.turned_empty[i].init(PrefillSizes<kTile>::kGroups);
    }
    cuda::fence_mbarrier_init();
  }
  __syncthreads();
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (group == 0) {
    cuda::give_registers<kTile.producer_registers()>();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if constexpr (kTile.codes()) {
      if (warp == 0)
        prefill_load<kTile, true, true>(shared, maps, args);
      else
        prefill_transpose<kTile>(shared, args);
    } else {
      if (warp == 0) prefill_load<kTile, true, false>(shared, maps, args);
      if (warp == 1) prefill_load<kTile, false, true>(shared, maps, args);
    }
  } else {
    cuda::take_registers<kTile.consumer_registers()>();
    uint32_t base = cuda::shared_address(&shared);
    asm volatile("" : "+r"(base));
    PrefillConsumer<Element, kTile>{shared, args, group - 1, base}.run();
  }
}

template <class Element, int kRow>
void PrefillInstance<Element, kRow>::prepare() {
  prefill_prepare(prefill<Element, kRow>, kPrefillTiles[kRow]);
}

template <class Element, int kRow>
void PrefillInstance<Element, kRow>::launch(const PrefillMaps& maps, const PrefillArgs& args, int blocks, void* stream) {
  prefill_launch(prefill<Element, kRow>, kPrefillTiles[kRow], maps, args, blocks, stream);
}

}  // namespace anyattn::flash
