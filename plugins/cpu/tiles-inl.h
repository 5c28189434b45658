// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX: eight of 16 rows x 64 bytes, and the product of bfloat16 pairs with float32 sums. Included by
// attention_tiles-inl.h. Written as assembler: GCC 12's intrinsics do not tell the compiler which memory they read.
#pragma once
#include "simd-inl.h"

namespace anyattn::cpu {
namespace {

// What each register is for. S, K and B have 16 rows, O and P as many as a block of query rows.
constexpr int kTileS0 = 0, kTileS1 = 1, kTileK = 2, kTileB = 3, kTileO0 = 4, kTileO1 = 5, kTileO2 = 6, kTileP = 7;

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
      shapes.rows[i] = static_cast<uint8_t>(i < kTileO0 ? 16 : block_rows);
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
