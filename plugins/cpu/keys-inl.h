// SPDX-License-Identifier: Apache-2.0
// How cache rows are read, and where the rows of a tile lie. Compiled once per instruction set behind simd-inl.h.
//
// A row format is a struct of static functions over one row (one token, one head). The kernels take it as a parameter and
// know nothing else about it; formats-inl.h may bring more of them.
//   kPairs       every element is exactly a bfloat16 and load_pairs exists: the dot and the tile kernels take the format
//   kInPlace     rows are bfloat16 as they lie: a tile may be read without a copy
//   kScaled      rows carry a float32 scale: K's multiplies the logit, V's the weight, so loads give unscaled elements
//   kBytes       of an element, rounded up; 4 says that loads convert nothing
//   kMixed       copy_mixed exists: rows of a multiple of 64 elements as bfloat16, each 64 in the order that unpacking leaves:
//                0-7, 16-23, 32-39, 48-55, 8-15, 24-31, 40-47, 56-63
//   bytes        of a row of `size` elements with its scale, for prefetching
//   load         elements [at, at + kLanes) as float32; at is a multiple of kLanes
//   load_n       the first n of them, zeros behind; nothing behind them is touched
//   load_pairs   elements [at, at + 2 kLanes) as bfloat16, two a 32-bit cell, the lower one first; load_pairs_n likewise
//   scale        of a row of `size` elements; read where kScaled
#pragma once
#include "simd-inl.h"

namespace anyattn::cpu {
namespace {

template <class Element>
struct PlainRows {
  static constexpr bool kPairs = false;
  static constexpr bool kInPlace = false;
  static constexpr bool kScaled = false;
  static constexpr bool kMixed = false;
  static constexpr int kBytes = Element::kBytes;
  static int64_t bytes(uint32_t size) { return static_cast<int64_t>(size) * kBytes; }
  static Vec load(const char* row, uint32_t at) { return cpu::load(row + static_cast<size_t>(at) * kBytes, Element{}); }
  static Vec load_n(const char* row, uint32_t at, int n) {
    return cpu::load_n(row + static_cast<size_t>(at) * kBytes, n, Element{});
  }
  static float scale(const char*, uint32_t) { return 1.f; }
};
using F32Rows = PlainRows<F32>;
using F16Rows = PlainRows<F16>;
struct BF16Rows : PlainRows<BF16> {
  static constexpr bool kPairs = true;
  static constexpr bool kInPlace = true;
#if defined(__AVX512BW__)
  static WordVec load_pairs(const char* row, uint32_t at) {
    return (WordVec)cpu::load(row + static_cast<size_t>(at) * 2, F32{});
  }
  static WordVec load_pairs_n(const char* row, uint32_t at, int n) {
    return load_words_n(row + static_cast<size_t>(at) * 2, n);
  }
#endif
};

// The rows of up to kTileKeys keys.
struct TileRows {
  const char* k[kTileKeys];
  const char* v[kTileKeys];
};

// Row addresses of keys [key, key + count). False where the table names no block.
template <class Tile>
bool find_rows(const KeySource& from, int64_t key, int count, Tile& to) {
  if (!from.table) {
    for (int i = 0; i < count; ++i) {
      to.k[i] = from.k + (key + i) * from.k_token_bytes;
      to.v[i] = from.v + (key + i) * from.v_token_bytes;
    }
    return true;
  }
  for (int i = 0; i < count;) {
    const int64_t index = (key + i) / from.block_size;
    const int64_t offset = (key + i) % from.block_size;
    const int64_t block = from.table[index];
    if (block < 0 || static_cast<uint64_t>(block) >= from.num_blocks) return false;
    const char* k = from.k + block * from.k_block_bytes + offset * from.k_token_bytes;
    const char* v = from.v + block * from.v_block_bytes + offset * from.v_token_bytes;
    const int64_t in_block = from.block_size - offset;
    const int stop = in_block < count - i ? i + static_cast<int>(in_block) : count;
    for (; i < stop; ++i, k += from.k_token_bytes, v += from.v_token_bytes) {
      to.k[i] = k;
      to.v[i] = v;
    }
  }
  return true;
}

}  // namespace
}  // namespace anyattn::cpu
