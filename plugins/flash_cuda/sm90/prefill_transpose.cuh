// SPDX-License-Identifier: Apache-2.0
// wgmma reads operands of 8 bits along their sum only, and V lies along its columns: warps beside the one that loads turn each tile
// in shared memory. Included by prefill_kernel.cuh.
//   v [key][128 bytes of columns] -> turned [column][128 bytes of keys], both swizzled
// Matrix loads transpose pairs of bytes; two byte permutations part the pair. So of sixteen keys the order becomes
// 0, 1, 8, 9, 2, 3, 10, 11, ..., that in which an accumulator's thread holds its scores, and of sixteen columns the even ones come
// first, which spreads the stores over the banks.
#pragma once

#include "cuda_common/matrix.cuh"
#include "cuda_common/mbarrier.cuh"
#include "flash_cuda/sm90/prefill_parts.cuh"

namespace anyattn::flash {

inline constexpr int kTransposers = 3;  // warps 1 to 3 of the producer group

// A tile, by addresses in shared memory. Codes of keys past `valid` become 0: they may be NaN.
template <int kKeys>
__device__ __forceinline__ void turn_codes(uint32_t v, uint32_t turned, int first, int valid) {
  const int lane = threadIdx.x % 32, row = lane % 8, key = lane / 8 % 2 * 8, half = lane / 16;  // of the matrix this lane names
  const uint32_t from = v + (key + row) * 128 + (half ^ row) * 16, to = turned + (half * 16 + key + row) * 128;
#pragma unroll 1
  for (int group = first; group < kKeys / 16; group += kTransposers) {
    const int left = valid - group * 16 - 2 * (lane % 4);  // of keys 0, 1, 8, 9 after this thread's first one
    uint32_t keep = 0xffffffffu;
    if (valid < kKeys)
      keep = (left > 0 ? 0xffu : 0) | (left > 1 ? 0xff00u : 0) | (left > 8 ? 0xff0000u : 0) | (left > 9 ? 0xff000000u : 0);
    const uint32_t to_piece = to + (group ^ row) * 16;
#pragma unroll
    for (int columns = 0; columns < 4; columns++) {  // 32 each
      uint32_t x[4];
      cuda::load_matrix_transposed(x, (from + group * 2048) ^ columns * 32);
      const uint32_t y[4] = {__byte_perm(x[0], x[1], 0x6420) & keep, __byte_perm(x[0], x[1], 0x7531) & keep,
                             __byte_perm(x[2], x[3], 0x6420) & keep, __byte_perm(x[2], x[3], 0x7531) & keep};
      cuda::store_matrix(to_piece + columns * 4096, y);
    }
  }
}

template <PrefillTile kTile, class Shared>
__device__ __forceinline__ void prefill_transpose(Shared& shared, const PrefillArgs& args) {
  static_assert(kTile.keys <= 128 && kTile.head_size_v == 128);
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 - 1;
  TileCount<kTile.stages> count;
  Deal deal(args);
  PrefillWork work;
  for (int head; deal.next(args.header, work, head);) {
    int valid = work.seq_len - (work.end_tile - 1) * kTile.keys;
    for (int tiles = work.end_tile - work.first_tile; tiles > 0; tiles--) {
      shared.turned_empty[count.stage].wait(count.phase ^ 1);
      shared.v_full[count.stage].wait(count.phase);
      turn_codes<kTile.keys>(cuda::shared_address(shared.v[count.stage]), cuda::shared_address(shared.turned[count.stage]),
                             first, valid);
      cuda::fence_async_shared();
      __syncwarp();
      if (lane == 0) {
        shared.turned_full[count.stage].arrive();
        shared.v_empty[count.stage].arrive();
      }
      valid += kTile.keys;
      count.advance();
    }
  }
}

}  // namespace anyattn::flash
