// SPDX-License-Identifier: Apache-2.0
// What the kernels of the Hopper prefill share: how blocks come by works, which keys a row sees, how it ends, the warp that feeds.
// Included by them. Multiplies nothing.
#pragma once

#include "cuda_common/check.h"
#include "cuda_common/softmax.cuh"
#include "cuda_common/tma.cuh"
#include "flash_cuda/sm90/prefill_args.h"
#include "flash_cuda/sm90/prefill_deal.cuh"
#include "flash_cuda/sm90/prefill_tile.h"

namespace anyattn::flash {

// The n-th tile since the start of the kernel: where it lies and which phase of its barriers it is.
template <int kStages>
struct TileCount {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  __device__ __forceinline__ TileCount before() const {
    return stage > 0 ? TileCount{stage - 1, phase} : TileCount{kStages - 1, phase ^ 1};
  }
};

// The same in every lane, and known to be so by the compiler: what depends on it does not split the warp.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
__device__ __forceinline__ PrefillWork uniform(const PrefillWork& w) {
  return {uniform(w.token), uniform(w.tokens), uniform(w.position),   uniform(w.seq_len),
          uniform(w.keys),  uniform(w.right),  uniform(w.first_tile), uniform(w.end_tile)};
}

// The works of this block.
struct Deal : SectionDeal {
  __device__ __forceinline__ Deal(const PrefillArgs& args)
      : SectionDeal(uniform(args.header->count), args.heads, uniform(args.header->section_heads), gridDim.x) {}
  // The next work that sees a key or has rows to clear; false once all are dealt.
  __device__ __forceinline__ bool next(const PrefillHeader* header, PrefillWork& work, int& head) {
    int index;
    if (!SectionDeal::next(blockIdx.x, gridDim.x, index, head)) return false;
    work = uniform(reinterpret_cast<const PrefillWork*>(header + 1)[index]);
    return true;
  }
};

// Keys a row sees: [low, high], columns relative to the tile. The one mask of this family; hooks: needed(tile), apply(scores).
struct Band {
  int low[2], high[2];              // of this thread's two rows, minus its column in a tile
  int tile_low_max, tile_high_min;  // over the rows of the tile

  __device__ __forceinline__ Band(const PrefillWork& work, const PrefillArgs& args, const int (&token)[2], int column) {
    const int seen = work.seq_len - 1;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int p = work.position + token[r];
      high[r] = min(seen, p + work.right) - column;
      low[r] = p - args.window_left - column;
    }
    tile_high_min = min(seen, work.position + work.right);
    tile_low_max = work.position + work.tokens - 1 - args.window_left;
  }
  template <int kKeys>
  __device__ __forceinline__ bool needed(int tile) const {
    return (tile + 1) * kKeys - 1 > tile_high_min || tile * kKeys < tile_low_max;
  }
  template <int kKeys>
  __device__ __forceinline__ void apply(float (&s)[kKeys / 2], int tile) const {
    const auto keep = [&](auto seen) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < kKeys / 4; i++) {
          float& x = s[i / 2 * 4 + 2 * r + i % 2];
          x = seen(r, i / 2 * 8 + i % 2) ? x : cuda::kMinusInfinity;
        }
      }
    };
    const int first = tile * kKeys;
    keep([&](int r, int column) { return column <= high[r] - first; });
    if (first < tile_low_max) keep([&](int r, int column) { return column >= low[r] - first; });
  }
};

// How a row ends: out = o * scale, lse = log(sum) + base; both with the sink in the sum. `top`: the base in powers of 2.
struct RowEnd {
  float scale, lse;

  __device__ __forceinline__ RowEnd(const PrefillArgs& args, const PrefillWork& work, float total, float top, int q_head) {
    float shrink = 1;  // o is relative to the old top
    if (total == 0) top = cuda::kMinusInfinity;
    if (args.sinks != nullptr && work.keys >= 0) {
      const float sink = args.sinks[q_head] * cuda::kLog2e, both = fmaxf(sink, top);
      if (both != cuda::kMinusInfinity) {
        shrink = cuda::exp2_fast(top - both);
        total = total * shrink + cuda::exp2_fast(sink - both);
        top = both;
      }
    }
    scale = total != 0 ? __fdividef(shrink, total) : 0;
    lse = total != 0 ? cuda::log_sum(top, total) : cuda::kMinusInfinity;
  }
  __device__ __forceinline__ void store_lse(const PrefillArgs& args, int token, int q_head) const {
    if (args.lse != nullptr) args.lse[token * args.lse_token_stride + q_head * args.lse_head_stride] = lse * args.lse_factor;
  }
};

template <class Kernel>
void prefill_prepare(Kernel kernel, const PrefillTile& tile) {
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile.shared_bytes()),
              "sm90_prefill, shared memory");
}
template <class Kernel>
void prefill_launch(Kernel kernel, const PrefillTile& tile, const PrefillMaps& maps, const PrefillArgs& args, int blocks,
                    void* stream) {
  kernel<<<blocks, tile.threads(), tile.shared_bytes(), static_cast<cudaStream_t>(stream)>>>(maps, args);
  cuda::check(cudaGetLastError(), "sm90_prefill");
}

// A warp feeds the works of its block: Q, then K tiles from the last one down, or V's, or both. Shared has q[chunk][row][128 bytes],
// k and v[stage][chunk][key][128 bytes], and their barriers; a chunk holds 128 bytes of a row. A lane copies one box of keys, of each chunk
// or of some; boxes that hold no key of the request's window are named past the end: zeros.
template <PrefillTile kTile, bool kLoadsK, bool kLoadsV, class Shared>
__device__ __forceinline__ void prefill_load(Shared& shared, const PrefillMaps& maps, const PrefillArgs& args) {
  constexpr int kKeys = kTile.keys, kColumns = 128 / kTile.element, kChunks = kTile.chunks(), kChunksV = kTile.chunks_v();
  const bool paged = args.block_size != 0;
  const int32_t* table = args.kept->block_table;
  const int64_t table_stride = args.kept->table_stride;
  const int lane = threadIdx.x % 32, boxes = kKeys / args.box_rows;  // a divisor of 32, or of rows of one chunk
  const int box = lane % boxes, first_chunk = lane / boxes, chunk_step = 32 / boxes;
  const int tile_blocks = paged ? kKeys / args.block_size : 0, tile_rows = kKeys - tile_blocks * args.block_size;
  TileCount<kTile.stages> k_tile, v_tile;
  uint32_t q_phase = 0;
  Deal deal(args);
  PrefillWork work;
  for (int head; deal.next(args.header, work, head);) {
    const int kv_head = head / args.kv_ratio;
    if (work.first_tile == work.end_tile) continue;
    const int low = work.position - args.window_left;

    // This lane's box of a tile: its first key, the row of that in its block, and the block's place in the table.
    int key = (work.end_tile - 1) * kKeys + box * args.box_rows;
    int index = paged ? key / args.block_size : 0, row = paged ? key - index * args.block_size : work.keys + key;
    const auto block_of = [&]() -> uint32_t {
      if (!paged) return 0;
      if (key >= work.seq_len || key + args.box_rows <= low) return args.num_blocks;
      return table[work.keys * table_stride + index];
    };
    const auto load = [&](const CUtensorMap& map, unsigned char* to, cuda::Mbarrier& full, int chunks, int at_row,
                          uint32_t block) {
      if (lane == 0) full.expect(chunks * kKeys * 128);
      const int valid = paged ? min(block, static_cast<uint32_t>(args.num_blocks)) : 0;
      for (int chunk = first_chunk; chunk < chunks; chunk += chunk_step)
        cuda::load_box(map, to + (chunk * kKeys + box * args.box_rows) * 128, full, chunk * kColumns, at_row, kv_head, valid);
    };
    const auto load_v = [&](int at_row, uint32_t block) {
      shared.v_empty[v_tile.stage].wait(v_tile.phase ^ 1);
      load(maps.v, shared.v[v_tile.stage], shared.v_full[v_tile.stage], kChunksV, at_row, block);
      v_tile.advance();
    };

    uint32_t block = block_of();
    if constexpr (kLoadsK) {
      shared.q_empty.wait(q_phase ^ 1);
      if (lane == 0) {
        shared.q_full.expect(kChunks * args.q_tokens * args.pack * 128);
        for (int chunk = 0; chunk < kChunks; chunk++)
          cuda::load_box(maps.q, shared.q + chunk * kTile.rows * 128, shared.q_full, chunk * kColumns, head * args.pack,
                         work.token);
      }
      q_phase ^= 1;
    }
    int row_before = 0;
    uint32_t block_before = 0;
    for (int tile = work.end_tile - 1; tile >= work.first_tile; tile--) {
      if constexpr (kLoadsK) {
        shared.k_empty[k_tile.stage].wait(k_tile.phase ^ 1);
        load(maps.k, shared.k[k_tile.stage], shared.k_full[k_tile.stage], kChunks, row, block);
        k_tile.advance();
      } else {
        load_v(row, block);
      }
      const int row_here = row;
      const uint32_t block_here = block;
      if (tile > work.first_tile) {  // the table is read a tile ahead
        key -= kKeys, index -= tile_blocks, row -= tile_rows;
        if (paged && row < 0) row += args.block_size, index--;
        block = block_of();
      }
      if (kLoadsK && kLoadsV && tile < work.end_tile - 1) load_v(row_before, block_before);
      row_before = row_here, block_before = block_here;
    }
    if (kLoadsK && kLoadsV) load_v(row_before, block_before);
  }
}

}  // namespace anyattn::flash
