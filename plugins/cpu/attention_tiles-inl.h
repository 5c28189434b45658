// SPDX-License-Identifier: Apache-2.0
// Attention of one unit on AMX: bfloat16 queries against rows that are exactly bfloat16. Serves prefill, encoders, MLA and
// decode of many heads a kv head; the same contract as attend() in attention-inl.h.
//
//   for each step of kStepKeys keys:   V -> pairs of keys side by side
//     for each block of 16 query rows: S' = K Q'  (keys x rows)  -> softmax down the columns -> P -> O = O + P V
//
// Scores stand turned: K rows are the left operand straight from the cache, the query is turned once a unit.
#pragma once
#include "tile_softmax-inl.h"

namespace anyattn::cpu {
namespace {

// What each phase of a step fetches (tile_unit-inl.h).
constexpr int kScoreShare = 12, kSoftmaxShare = 2, kPairShare = 8, kAddShare = 10;
static_assert(kScoreShare + kSoftmaxShare + kPairShare + kAddShare == 32);

template <class Rows, int kRows>
struct TileAttention : TileSoftmax<Rows, kRows> {
  using Base = TileSoftmax<Rows, kRows>;
  using Base::Base;
  using Base::count;
  using Base::current;
  using Base::fetch_until;
  using Base::kKeys;
  using Base::padded_count;
  using Base::split;
  using Base::steps;
  using Base::u;
  using Base::w;
  using typename Base::Share;

  // ---- S' = K Q': [keys][rows] of 32 keys and one or two blocks
  template <int kBlocks>
  void score_pair(const RowTile* keys, int group, uint32_t block, const Share& share, int part) {
    constexpr int64_t kRowBytes = kRows * 4;
    const size_t block_bytes = size_t{w.k_stride} * 2 * 16;
    const char* q = w.q + block * block_bytes;
    tile_zero<kSum0>();
    tile_zero<kSum1>();
    if (kBlocks == 2) tile_zero<kSum2>();
    if (kBlocks == 2) tile_zero<kSum3>();
    for (uint32_t d = 0; d < w.k_stride; d += 32) {
      if (block == 0) fetch_until(share.until(part++));
      tile_load<kRight0>(q + size_t{d} * 32, 64);
      tile_load<kLeft0>(keys[group].at + size_t{d} * 2, keys[group].stride);
      tile_dot<kSum0, kLeft0, kRight0>();
      if constexpr (kBlocks == 2) {
        tile_load<kRight1>(q + block_bytes + size_t{d} * 32, 64);
        tile_dot<kSum2, kLeft0, kRight1>();
        tile_load<kLeft1>(keys[group + 1].at + size_t{d} * 2, keys[group + 1].stride);
        tile_dot<kSum1, kLeft1, kRight0>();
        tile_dot<kSum3, kLeft1, kRight1>();
      } else {
        tile_load<kLeft0>(keys[group + 1].at + size_t{d} * 2, keys[group + 1].stride);
        tile_dot<kSum1, kLeft0, kRight0>();
      }
    }
    // Rows of a narrow block overlap: each one's unused columns are overwritten by the next, the last one's by the next tile.
    float* to = w.scores_of(block, kRows) + group * 16 * kRows;
    tile_store<kSum0>(to, kRowBytes);
    tile_store<kSum1>(to + 16 * kRows, kRowBytes);
    if (kBlocks == 2) tile_store<kSum2>(to + kStepKeys * kRows, kRowBytes);
    if (kBlocks == 2) tile_store<kSum3>(to + (kStepKeys + 16) * kRows, kRowBytes);
  }
  void score() {
    RowTile keys[kStepKeys / 16];
    const int groups = padded_count() / 16;
    for (int g = 0; g < groups; ++g) keys[g] = g * 16 < count ? this->key_tile(g * 16) : keys[g - 1];
    const int chunks = static_cast<int>(w.k_stride / 32);
    const Share share(0, kScoreShare, groups / 2 * chunks);
    for (int g = 0; g < groups; g += 2) {
      uint32_t block = 0;
      if constexpr (kRows == 16)
        for (; block + 2 <= w.blocks; block += 2) score_pair<2>(keys, g, block, share, g / 2 * chunks);
      if (block < w.blocks) score_pair<1>(keys, g, block, share, g / 2 * chunks);
    }
  }

  // Weights of 32 keys, in the high halves of what bits(i), bits(i + 1), ... give, to rows of bf16.
  template <class Bits>
  static void pack_weights(char* to, int i, const Bits& bits) {
    if constexpr (kRows == 16) {
      Vec cells[16];
      for (int j = 0; j < 16; ++j) {
        const __m512i even = bits(i + 2 * j), odd = bits(i + 2 * j + 1);
        cells[j] = (Vec)_mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(even, 16), odd);
      }
      transpose(cells);
      for (int r = 0; r < 16; ++r) _mm512_store_si512(to + r * kStepKeys * 2, (__m512i)cells[r]);
    } else {
      const __m512i by_row = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
      __m512i y[4];  // [4 rows][8 keys] each
      for (int j = 0; j < 4; ++j) {
        const __m512i a = _mm512_srli_epi32(_mm512_permutexvar_epi32(by_row, bits(i + 2 * j)), 16);
        const __m512i b = _mm512_srli_epi32(_mm512_permutexvar_epi32(by_row, bits(i + 2 * j + 1)), 16);
        y[j] = _mm512_packus_epi32(a, b);
      }
      const __m512i low01 = _mm512_shuffle_i32x4(y[0], y[1], 0x44), low23 = _mm512_shuffle_i32x4(y[2], y[3], 0x44);
      const __m512i high01 = _mm512_shuffle_i32x4(y[0], y[1], 0xee), high23 = _mm512_shuffle_i32x4(y[2], y[3], 0xee);
      const auto put = [&](int r, __m512i row) { _mm512_store_si512(to + r * kStepKeys * 2, row); };
      put(0, _mm512_shuffle_i32x4(low01, low23, 0x88));
      put(1, _mm512_shuffle_i32x4(low01, low23, 0xdd));
      put(2, _mm512_shuffle_i32x4(high01, high23, 0x88));
      put(3, _mm512_shuffle_i32x4(high01, high23, 0xdd));
    }
  }
  template <class Bits>
  void pack(int part, int key, int i, const Bits& bits, uint32_t block) const {
    pack_weights(w.weights_of(block, kRows) + (part * kRows * kStepKeys + key) * 2, i, bits);
  }

  // ---- V

  // Apart from the walk, as copy_rows is.
  static __attribute__((noinline)) void pair_rows(const char* first, const char* second, uint32_t size, char* to) {
    for (uint32_t at = 0; at < size; at += 32, to += 128) {
      const int n = size - at < 32 ? static_cast<int>(size - at) : 32;
      const __m512i even = (__m512i)(n == 32 ? Rows::load_pairs(first, at) : Rows::load_pairs_n(first, at, n));
      const __m512i odd = (__m512i)(n == 32 ? Rows::load_pairs(second, at) : Rows::load_pairs_n(second, at, n));
      _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
      _mm512_store_si512(to + 64, _mm512_unpackhi_epi16(even, odd));
    }
  }

  // Pairs of V rows side by side; rows past `count` up to a multiple of 32 are zero.
  void pair_values() {
    const StepRows& rows = steps[current];
    const Share share(kScoreShare + kSoftmaxShare, kPairShare, padded_count() / 2);
    for (int t = 0; t < padded_count(); t += 2) {
      char* to = w.v_pairs + size_t(t / 2) * w.out_stride * 4;
      fetch_until(share.until(t / 2));
      if (!Rows::kInPlace && t + 1 < count) {
        pair_rows(rows.v[t], rows.v[t + 1], u.head_size_v, to);
        continue;
      }
      for (uint32_t at = 0; at < w.out_stride; at += 32, to += 128) {
        const int n = u.head_size_v - at < 32 ? static_cast<int>(u.head_size_v - at) : 32;
        const auto row = [&](int i) {
          if (i >= count) return _mm512_setzero_si512();
          return (__m512i)(n == 32 ? Rows::load_pairs(rows.v[i], at) : Rows::load_pairs_n(rows.v[i], at, n));
        };
        const __m512i even = row(t), odd = row(t + 1);
        _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
        _mm512_store_si512(to + 64, _mm512_unpackhi_epi16(even, odd));
      }
    }
  }

  // ---- O += P V: 32 columns of one or two blocks
  template <int kBlocks>
  void add_columns(uint32_t block, uint32_t column) {
    // One block leaves the registers of the scores alone, since its rows may be fewer.
    constexpr int kO0 = kBlocks == 2 ? kSum0 : kSum2, kO1 = kBlocks == 2 ? kSum1 : kSum3;
    constexpr int kP = kBlocks == 2 ? kLeft0 : kLeft1;
    const int64_t out_bytes = int64_t{w.out_stride} * 4;
    float* out = w.out + size_t{block} * kRows * w.out_stride + column;
    float* out2 = out + size_t{kRows} * w.out_stride;
    tile_load<kO0>(out, out_bytes);
    tile_load<kO1>(out + 16, out_bytes);
    if (kBlocks == 2) tile_load<kSum2>(out2, out_bytes);
    if (kBlocks == 2) tile_load<kSum3>(out2 + 16, out_bytes);
    for (int part = 0; part <= static_cast<int>(split); ++part) {
      const char* weights = w.weights_of(block, kRows) + part * kRows * kStepKeys * 2;
      for (int key = 0; key < padded_count(); key += 32) {
        const char* v = w.v_pairs + (size_t(key / 2) * w.out_stride + column) * 4;
        tile_load<kP>(weights + key * 2, kStepKeys * 2);
        tile_load<kRight0>(v, out_bytes);
        tile_dot<kO0, kP, kRight0>();
        tile_load<kRight1>(v + 64, out_bytes);
        tile_dot<kO1, kP, kRight1>();
        if constexpr (kBlocks == 2) {
          tile_load<kLeft1>(weights + kRows * kStepKeys * 4 + key * 2, kStepKeys * 2);
          tile_dot<kSum2, kLeft1, kRight0>();
          tile_dot<kSum3, kLeft1, kRight1>();
        }
      }
    }
    tile_store<kO0>(out, out_bytes);
    tile_store<kO1>(out + 16, out_bytes);
    if (kBlocks == 2) tile_store<kSum2>(out2, out_bytes);
    if (kBlocks == 2) tile_store<kSum3>(out2 + 16, out_bytes);
  }
  void add_values() {
    const Share share(kScoreShare + kSoftmaxShare + kPairShare, kAddShare, static_cast<int>(w.out_stride / 32));
    for (uint32_t column = 0; column < w.out_stride; column += 32) {
      fetch_until(share.until(static_cast<int>(column / 32)));
      uint32_t block = 0;
      if constexpr (kRows == 16)
        for (; block + 2 <= w.blocks; block += 2) add_columns<2>(block, column);
      if (block < w.blocks) add_columns<1>(block, column);
    }
  }

  // A weight of 0 does not undo a NaN or an infinity: rows that do not see such a value leave it out, key by key.
  bool values_are_finite() const {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    const char* at = w.v_pairs;
    const char* stop = at + size_t(padded_count() / 2) * w.out_stride * 4;
    __mmask32 special = 0;
    for (; at < stop; at += 64) special |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_load_si512(at), exponent), exponent);
    return special == 0;
  }
  void add_seen_values() {
    for (uint32_t row = 0; row < w.rows; ++row) {
      float* out = w.out + size_t{row} * w.out_stride;
      const char* weights = w.weights_of(row / kRows, kRows);
      for (int t = w.begin[row]; t < w.end[row]; ++t) {
        const auto weight = [&](uint32_t first) {
          uint16_t bits;
          __builtin_memcpy(&bits, weights + ((first + row % kRows) * kStepKeys + static_cast<uint32_t>(t)) * 2, 2);
          return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(uint32_t{bits} << 16)));
        };
        const __m512 p = split ? _mm512_add_ps(weight(0), weight(kRows)) : weight(0);
        const char* v = w.v_pairs + size_t(t / 2) * w.out_stride * 4;
        for (uint32_t i = 0; i < w.out_stride; i += 16) {
          const __m512i cells = _mm512_load_si512(v + size_t{i} * 4);
          const __m512i value =
              t % 2 ? _mm512_and_si512(cells, _mm512_set1_epi32(static_cast<int>(0xffff0000u))) : _mm512_slli_epi32(cells, 16);
          _mm512_store_ps(out + i, _mm512_fmadd_ps(p, _mm512_castsi512_ps(value), _mm512_load_ps(out + i)));
        }
      }
    }
  }

  // O's columns back in order, and by row the factor that turns a division by the sum into one by the rounded sum.
  void settle() {
    for (uint32_t row = 0; row < w.rows; ++row) {
      float* out = w.out + size_t{row} * w.out_stride;
      const __m512 factor = _mm512_set1_ps(this->settling(row));
      for (uint32_t i = 0; i < w.out_stride; i += 32) {
        const __m512 low = _mm512_mul_ps(_mm512_load_ps(out + i), factor);
        const __m512 high = _mm512_mul_ps(_mm512_load_ps(out + i + 16), factor);
        const __m512 even = _mm512_shuffle_f32x4(low, high, 0x44), odd = _mm512_shuffle_f32x4(low, high, 0xee);
        _mm512_store_ps(out + i, _mm512_shuffle_f32x4(even, even, 0xd8));
        _mm512_store_ps(out + i + 16, _mm512_shuffle_f32x4(odd, odd, 0xd8));
      }
      w.row_max[row] *= kLn2;
    }
  }

  int32_t run() {
    const TileShapes shapes(kRows);
    const int32_t bad = this->walk([&](int64_t, bool all, bool plain) {
      score();
      const Share share(kScoreShare, kSoftmaxShare, static_cast<int>(w.blocks));
      for (uint32_t block = 0; block < w.blocks; ++block) {
        fetch_until(share.until(static_cast<int>(block)));
        this->softmax(block, plain, *this);
      }
      pair_values();
      if (all || values_are_finite())
        add_values();
      else
        add_seen_values();
    });
    if (bad) return bad;
    settle();
    finish(u, w);
    return 0;
  }
};

}  // namespace
}  // namespace anyattn::cpu
