// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX: eight of 16 rows x 64 bytes, and the product of bfloat16 pairs with float32 sums. Included by
// attention_tiles-inl.h. Written as assembler: GCC 12's intrinsics do not tell the compiler which memory they read.
#pragma once
#include "simd-inl.h"

namespace anyattn::cpu {
namespace {

// Four sums of a 2 x 2 product, its two left and its two right operands. A product of one block of query rows uses sums 0 and 1
// with left 0 for scores, sums 2 and 3 with left 1 for values: these three have as many rows as the block.
constexpr int kSum0 = 0, kSum1 = 1, kSum2 = 2, kSum3 = 3, kLeft0 = 4, kLeft1 = 5, kRight0 = 6, kRight1 = 7;

// Shapes of all registers; released in the destructor, since a thread with tiles in use is slow to switch.
class TileShapes {
 public:
  explicit TileShapes(int block_rows) {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    static_assert(sizeof shapes == 64);
    for (int i = 0; i < 8; ++i) {
      shapes.row_bytes[i] = 64;
      shapes.rows[i] = static_cast<uint8_t>(i == kSum2 || i == kSum3 || i == kLeft1 ? block_rows : 16);
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
  }
  ~TileShapes() { __asm__ volatile("tilerelease" ::: "memory"); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
};

template <int kTile>
inline void tile_load(const void* from, int64_t row_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_store(void* to, int64_t row_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// sums[i][j] += a[i][2k] b[k][2j] + a[i][2k + 1] b[k][2j + 1] over the k of a row of a; denormals count as 0.
template <int kSums, int kA, int kB>
inline void tile_dot() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace anyattn::cpu
