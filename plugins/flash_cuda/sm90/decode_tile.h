// SPDX-License-Identifier: Apache-2.0
// The sizes of a block of the Hopper decode, one place. Included by its host code and kernels.
#pragma once

namespace anyattn::flash::sm90 {

inline constexpr int kChunk = 16;     // keys a warp takes at a time: the k of one product P V, and never more than one page
inline constexpr int kMaxRows = 16;   // query tokens x query heads of a unit: the m of mma.m16n8k16
inline constexpr int kTeamWarps = 4;  // where a block's warps work on two lines; else all work on one
inline constexpr int kStagePad = 8;   // floats after a row where warps meet: rows of a fragment lie in other banks
inline constexpr int kPartPad = 4;    // after a row of a piece: its maximum and sum

// A row lies in shared memory as segments, all rows of a segment together, each under the copy engine's swizzle of its width.
constexpr int segment_bytes(int row_bytes) { return row_bytes % 128 == 0 ? 128 : row_bytes % 64 == 0 ? 64 : 32; }
constexpr int chunk_bytes(int row_bytes) { return 2 * kChunk * row_bytes; }

struct DecodeTile {
  int head_size;
  int warps;             // of a block
  int depth;             // chunks on their way for a warp, at most: as many of these as shared memory takes
  bool query_in_shared;  // q's fragments; else a warp holds them in registers
  bool values_early;     // V's fragments of a chunk are asked for before its softmax

  constexpr int threads() const { return warps * 32; }
  constexpr int teams() const { return warps / kTeamWarps; }
  constexpr int query_bytes() const { return query_in_shared ? kMaxRows * head_size * 2 : 0; }
  // Where warps meet: outputs, maximum and sum of each, and of the other block of the cluster.
  constexpr int staged_bytes(int rows) const { return (warps + 1) * rows * (head_size + kStagePad + 2) * 4; }
  // 1024 to align, 512 of barriers.
  constexpr int shared_bytes(int row_bytes, int rows, int chunks) const {
    return 1024 + warps * chunks * chunk_bytes(row_bytes) + query_bytes() + staged_bytes(rows) + 512;
  }
};

// Registers, 255 a thread: head_size / 2 sums, head_size / 4 of q and as many of V. Shared memory, 226 KiB for the one block of a
// multiprocessor: the ring, of which 42 KiB on their way cover the latency, and the sums where warps meet. A chunk of 16 bits is
// 64 x head_size bytes. Depths named are those of 4 rows, of 16 bits and of 8.
inline constexpr DecodeTile kDecodeTiles[] = {
    {64, 8, 8, false, true},   // 32 + 16 + 16 registers; depth 6 and 8: 192 and 128 KiB
    {96, 8, 8, false, true},   // 48 + 24 + 24 registers; depth 4 and 8
    {128, 8, 8, false, true},  // 64 + 32 + 32 registers, 232 at most with all else; depth 3 and 6
    {192, 4, 8, true, false},  // 8 warps would stage 114 KiB of 16 rows: one chunk each beside it; depth 4 and 8
    {256, 4, 8, true, false},  // 8 would stage 150 KiB: no chunk; 128 + 64 + 64 registers are too many; depth 3 and 6
};

// The row of `head_size`; head_size 0: there is none.
constexpr DecodeTile decode_tile(int head_size) {
  for (const DecodeTile& tile : kDecodeTiles)
    if (tile.head_size == head_size) return tile;
  return {};
}

}  // namespace anyattn::flash::sm90
