// SPDX-License-Identifier: Apache-2.0
// Prefill on Hopper with q, K and V of 8 bits (e4m3): as prefill_kernel.cuh, but each group has two tiles of scores, of which the next
// one is multiplied under the softmax of this one, and three warps turn V, see prefill_transpose.cuh. Included by the instances.
//   q [tokens, num_q_heads, head_size] | k, v [blocks, ...] in e4m3 with scales | out [tokens, num_q_heads, head_size_v] in 16 bits
// Source: FlashAttention-3, arXiv:2407.08608 (V turned in shared memory, order of keys in P).
#pragma once

#include <cstddef>

#include "cuda_common/codes.cuh"
#include "cuda_common/convert.cuh"
#include "cuda_common/wgmma.cuh"
#include "flash_cuda/sm90/prefill_instance.cuh"
#include "flash_cuda/sm90/prefill_parts.cuh"
#include "flash_cuda/sm90/prefill_transpose.cuh"

namespace anyattn::flash {

// A block starts with 168 registers a thread, and what the groups hold together may not pass that: the take would wait for ever.
inline constexpr int kCodesProducerRegisters = 56, kCodesConsumerRegisters = 224;

template <PrefillTile kTile>
struct PrefillCodesShared {
  static constexpr int kChunks = kTile.chunks(), kChunksV = kTile.chunks_v(), kTurnedBytes = kTile.turned_bytes();
  unsigned char q[kTile.q_stages][kChunks * kTile.rows * 128];  // [chunk][row][128 bytes], swizzled
  unsigned char k[kTile.stages][kChunks * kTile.keys * 128];
  unsigned char v[kTile.stages][kChunksV * kTile.keys * 128];
  unsigned char turned[kTile.stages][kTurnedBytes];
  unsigned char ones[1024];  // 8 rows of 128 codes, each 1
  cuda::Mbarrier q_full[kTile.q_stages], q_empty[kTile.q_stages], k_full[kTile.stages], k_empty[kTile.stages],
      v_full[kTile.stages], v_empty[kTile.stages], turned_full[kTile.stages], turned_empty[kTile.stages];
};

template <PrefillTile kTile, bool kLse>
struct PrefillCodesConsumer {
  static constexpr int kStepSize = 32, kSteps = kTile.keys / kStepSize;  // codes that one product takes along its sum
  using Qk = cuda::Wgmma<__nv_fp8_e4m3, kTile.keys>;
  using Pv = cuda::Wgmma<__nv_fp8_e4m3, kTile.head_size_v>;
  using Sum = cuda::Wgmma<__nv_fp8_e4m3, 8>;
  using Shared = PrefillCodesShared<kTile>;
  using Softmax = cuda::CodesSoftmax;
  using Count = TileCount<kTile.stages>;

  Shared& shared;
  const PrefillArgs& args;
  const int group;             // of 64 rows, uniform in the warp
  const uint32_t base;         // address of shared, hidden from the compiler, which would compute it anew in every turn
  float s[2][kTile.keys / 2];  // scores of this tile and the next
  uint32_t p[kSteps][4];
  float o[kTile.head_size_v / 2];
  float total[2];  // with lse this thread's share of the rows' sums, else all
  float sum[4];    // without: of a tile of P, rows 0, 0, 8, 8 of this thread

  __device__ __forceinline__ void wait(size_t barrier, const Count& tile) const {
    cuda::Mbarrier::wait(base + barrier + tile.stage * sizeof(cuda::Mbarrier), tile.phase);
  }
  __device__ __forceinline__ void release(size_t barrier, int stage) const {
    if (threadIdx.x % 128 == 0) cuda::Mbarrier::arrive(base + barrier + stage * sizeof(cuda::Mbarrier));
  }

  // scores = Q K^T: [64, keys]
  __device__ __forceinline__ void multiply_qk(float (&scores)[kTile.keys / 2], int q_stage, int stage) {
    const uint64_t a = cuda::operand(base + offsetof(Shared, q) + q_stage * sizeof(Shared::q[0]) + group * 64 * 128, 16, 1024);
    const uint64_t b = cuda::operand(base + offsetof(Shared, k) + stage * sizeof(Shared::k[0]), 16, 1024);
#pragma unroll
    for (int i = 0; i < kTile.head_size / kStepSize; i++)
      Qk::ss(scores, a + (i / 4 * kTile.rows * 128 + i % 4 * 32) / 16, b + (i / 4 * kTile.keys * 128 + i % 4 * 32) / 16, i > 0);
    cuda::wgmma_commit();
  }
  // o += P V: [64, head_size_v]. Without lse also the sums of P's rows, of one tile only, since the matrix unit keeps some 13 bits of a
  // sum: quicker than 64 additions a thread, 862 to 937 TFLOP/s at 16384 keys. They are sums of codes, right beside P V, not in lse.
  __device__ __forceinline__ void multiply_pv(int stage) {
    const uint64_t b = cuda::operand(base + offsetof(Shared, turned) + stage * sizeof(Shared::turned[0]), 16, 1024);
    const uint64_t ones = cuda::operand(base + offsetof(Shared, ones), 16, 1024);
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      if constexpr (!kLse) Sum::rs(sum, p[i], ones, i > 0);
      Pv::rs(o, p[i], b + (i / 4 * kTile.head_size_v * 128 + i % 4 * 32) / 16, 1);
    }
    cuda::wgmma_commit();
  }
  // Once the product is done.
  __device__ __forceinline__ void end_pv(int stage) {
    cuda::wgmma_wait<0>();
    cuda::pin(o);
    release(offsetof(Shared, turned_empty), stage);
    if constexpr (!kLse) {
      cuda::pin(sum);
      total[0] += sum[0], total[1] += sum[2];
    }
  }
  __device__ __forceinline__ void add(const float (&now)[kTile.keys / 2]) {
    float part[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kTile.keys / 2; i++) part[i % 4] += now[i];
    total[0] += part[0] + part[1], total[1] += part[2] + part[3];
  }
  // Soft cap, in units of the cap: tanh by one exponential and one division.
  __device__ __forceinline__ void cap(float (&scores)[kTile.keys / 2], float cap_log2) {
#pragma unroll
    for (int i = 0; i < kTile.keys / 2; i++) scores[i] = 1 - __fdividef(2, cuda::exp2_fast(scores[i] * cap_log2) + 1);
  }
  // A thread's four codes are those of keys 2 quad, + 1, + 8, + 9 of sixteen, the order in which V's were turned.
  __device__ __forceinline__ void pack_p(const float (&scores)[kTile.keys / 2]) {
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float* x = scores + 16 * i + e / 2 * 8 + e % 2 * 2;
        p[i][e] = cuda::pack4_e4m3(x[0], x[1], x[4], x[5]);
      }
    }
  }

  // What a work's scores and sums are multiplied by.
  struct Factors {
    float scale_log2, cap_log2, value;
  };
  __device__ __forceinline__ Factors factors(int head) const {
    Factors to{args.scale_log2, args.cap_log2, 1};
    const int kv_head = head / args.kv_ratio, of_cache = args.kv_scales_per_head ? kv_head : 0;
    float score = args.q_scale[args.q_scales_per_head ? kv_head : 0];
    if (args.k_scale != nullptr) score *= args.k_scale[of_cache];
    if (args.v_scale != nullptr) to.value = args.v_scale[of_cache];
    (args.cap_log2 != 0 ? to.cap_log2 : to.scale_log2) *= score;
    return to;
  }

  // Scores of `now` become P, under the product P V of the tile before; when a quarter of the exponentials are done, the scores of
  // the next tile are on their way.
  template <int kNow, bool kProduct, bool kAhead>
  __device__ __forceinline__ void turn(const Band& band, const Factors& by, int tile, int q_stage, Count& count,
                                       Softmax& softmax) {
    constexpr int kFirst = kTile.keys / 8;
    auto& now = s[kNow];
    const auto before = count.before();
    if constexpr (kProduct) {
      wait(offsetof(Shared, turned_full), before);
      cuda::wgmma_fence();
      multiply_pv(before.stage);
      cuda::wgmma_wait<1>();
    } else {
      cuda::wgmma_wait<0>();
    }
    cuda::pin(now);
    release(offsetof(Shared, k_empty), count.stage);
    if (args.cap_log2 != 0) cap(now, by.cap_log2);
    if (band.template needed<kTile.keys>(tile)) band.template apply<kTile.keys>(now, tile);
    float factor[2], shift[2];
    const bool grew = softmax.follow(now, by.scale_log2, factor, shift);
    softmax.template exponentials<0, kFirst>(now, by.scale_log2, shift);
    cuda::pin(now);
    if constexpr (kProduct) {
      // The wait in a branch too, because ptxas would move it ahead of the exponentials, which belong under the product.
      if (grew) cuda::wgmma_wait<0>();
      end_pv(before.stage);
      if (grew) {
#pragma unroll
        for (int i = 0; i < kTile.head_size_v / 2; i++) o[i] *= factor[i / 2 % 2];
        total[0] *= factor[0], total[1] *= factor[1];
      }
    }
    if constexpr (kAhead) {
      auto ahead = count;
      ahead.advance();
      wait(offsetof(Shared, k_full), ahead);
      cuda::pin(s[1 - kNow]);
      cuda::wgmma_fence();
      multiply_qk(s[1 - kNow], q_stage, ahead.stage);
    } else {
      release(offsetof(Shared, q_empty), q_stage);
    }
    softmax.template exponentials<kFirst, kTile.keys / 2>(now, by.scale_log2, shift);
    if constexpr (kLse) add(now);
    pack_p(now);
    count.advance();
  }

  // All tiles of a work; scores lie in s[0] and s[1] by turns, and the last tile has none to come.
  __device__ __forceinline__ void walk(const PrefillWork& work, const Band& band, const Factors& by, int q_stage, Count& count,
                                       Softmax& softmax) {
    int tile = work.end_tile - 1;
    wait(offsetof(Shared, k_full), count);
    cuda::pin(s[0]);
    cuda::wgmma_fence();
    multiply_qk(s[0], q_stage, count.stage);
    if (tile == work.first_tile) {
      turn<0, false, false>(band, by, tile, q_stage, count, softmax);
    } else {
      turn<0, false, true>(band, by, tile, q_stage, count, softmax);
      for (;;) {
        if (--tile == work.first_tile) {
          turn<1, true, false>(band, by, tile, q_stage, count, softmax);
          break;
        }
        turn<1, true, true>(band, by, tile, q_stage, count, softmax);
        if (--tile == work.first_tile) {
          turn<0, true, false>(band, by, tile, q_stage, count, softmax);
          break;
        }
        turn<0, true, true>(band, by, tile, q_stage, count, softmax);
      }
    }
    const auto before = count.before();
    wait(offsetof(Shared, turned_full), before);
    cuda::pin(o);
    cuda::wgmma_fence();
    multiply_pv(before.stage);
    end_pv(before.stage);
  }

  __device__ __forceinline__ void run() {
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;  // and row + 8
    const int token[2] = {row / args.pack, (row + 8) / args.pack};
    Count count;
    TileCount<kTile.q_stages> q_count;
    Deal deal(args);
    PrefillWork work;
    for (int head; deal.next(args.header, work, head);) {
      const Factors by = factors(head);
      Softmax softmax;
#pragma unroll
      for (int i = 0; i < kTile.head_size_v / 2; i++) o[i] = 0;
      total[0] = total[1] = 0;
      if (work.first_tile < work.end_tile) {
        const Band band(work, args, token, 2 * (threadIdx.x % 4));
        const int q_stage = q_count.stage;
        shared.q_full[q_stage].wait(q_count.phase);
        q_count.advance();
        walk(work, band, by, q_stage, count, softmax);
      }
      store(work, head, by, row, token, softmax);
    }
  }

  // out = o * value / sum, lse = log(sum) + base; both with the sink in the sum.
  __device__ __forceinline__ void store(const PrefillWork& work, int head, const Factors& by, int row, const int (&token)[2],
                                        const Softmax& softmax) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int q_head = head * args.pack + (row + 8 * r) % args.pack;
      const RowEnd end(args, work, kLse ? cuda::quad_sum(total[r]) : total[r], softmax.base[r] * by.scale_log2 - Softmax::kLift,
                       q_head);
      if (token[r] >= work.tokens) continue;
      if (kLse && threadIdx.x % 4 == 0) end.store_lse(args, work.token + token[r], q_head);
      store_row(args.out.data + (work.token + token[r]) * args.out.token_bytes + q_head * args.out.head_bytes, r,
                end.scale * by.value);
    }
  }
  // Rows of V that was turned are its even columns, then its odd ones, of each sixteen: a thread holds four neighbours.
  __device__ __forceinline__ void store_row(char* out, int r, float scale) {
#pragma unroll
    for (int i = 0; i < kTile.head_size_v / 16; i++) {
      const float *even = o + 8 * i + 2 * r, *odd = even + 4;
      const float x[4] = {even[0] * scale, odd[0] * scale, even[1] * scale, odd[1] * scale};
      const uint2 four = args.out_dtype == kBF16
                             ? uint2{cuda::pack2<__nv_bfloat16>(x[0], x[1]), cuda::pack2<__nv_bfloat16>(x[2], x[3])}
                             : uint2{cuda::pack2<__half>(x[0], x[1]), cuda::pack2<__half>(x[2], x[3])};
      const int column = 16 * i + threadIdx.x % 4 * 4;
      if (column < args.head_size_v) *reinterpret_cast<uint2*>(out + column * 2) = four;
    }
  }
};

template <int kRow, bool kLse>
__global__ void __launch_bounds__(kPrefillTiles[kRow].threads(), 1)
    prefill_codes(const __grid_constant__ PrefillMaps maps, const __grid_constant__ PrefillArgs args) {
  constexpr PrefillTile kTile = kPrefillTiles[kRow];
  constexpr int kGroups = kTile.groups();
  using Shared = PrefillCodesShared<kTile>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<Shared*>(bytes);
  if (threadIdx.x < sizeof(shared.ones) / 4) reinterpret_cast<uint32_t*>(shared.ones)[threadIdx.x] = 0x38383838;
  cuda::fence_async_shared();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kTile.q_stages; i++) {
      shared.q_full[i].init(1);
      shared.q_empty[i].init(kGroups);
    }
    for (int i = 0; i < kTile.stages; i++) {
      shared.k_full[i].init(1);
      shared.v_full[i].init(1);
      shared.k_empty[i].init(kGroups);
      shared.v_empty[i].init(kTransposers);
      shared.turned_full[i].init(kTransposers);
      shared.turned_empty[i].init(kGroups);
    }
    cuda::fence_mbarrier_init();
  }
  __syncthreads();
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (group == 0) {
    cuda::give_registers<kCodesProducerRegisters>();
    if (threadIdx.x < 32)
      prefill_load<kTile>(shared, maps, args);
    else
      prefill_transpose<kTile>(shared, args);
  } else {
    cuda::take_registers<kCodesConsumerRegisters>();
    uint32_t base = cuda::shared_address(&shared);
    asm volatile("" : "+r"(base));
    PrefillCodesConsumer<kTile, kLse>{shared, args, group - 1, base}.run();
  }
}

template <int kRow>
void PrefillCodesInstance<kRow>::prepare() {
  static_assert(sizeof(PrefillCodesShared<kPrefillTiles[kRow]>) <= kPrefillTiles[kRow].shared_bytes());
  prefill_prepare(prefill_codes<kRow, true>, kPrefillTiles[kRow]);
  prefill_prepare(prefill_codes<kRow, false>, kPrefillTiles[kRow]);
}

template <int kRow>
void PrefillCodesInstance<kRow>::launch(const PrefillMaps& maps, const PrefillArgs& args, int blocks, void* stream) {
  prefill_launch(args.lse != nullptr ? prefill_codes<kRow, true> : prefill_codes<kRow, false>, kPrefillTiles[kRow], maps, args,
                 blocks, stream);
}

}  // namespace anyattn::flash
