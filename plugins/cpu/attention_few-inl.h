// SPDX-License-Identifier: Apache-2.0
// Decode on AMX: up to four query heads of one token against rows that are exactly bfloat16, as attention_tiles-inl.h does it
// but without pairing V.
//
//   S' = K Q'   as there; the query stays in four registers
//   O += P V    V's rows are the right operand as they lie: a cell of 16 keys x 16 cells then holds two dims of one key instead
//               of two keys of one dim. P takes two rows a query row, (p, 0) and (0, p): one sums even dims, the other odd ones
//
// As many products as with pairs, since they have rows to spare, and half the loads and stores. The other dim of a cell is
// multiplied by 0: not harmless where it is NaN or infinite, so a unit whose sums come out so is done again with pairs. Keys
// out of sight count as zeros. A float32 output takes two more rows a query row, of what rounding left of the weights.
#pragma once
#include "attention_tiles-inl.h"

namespace anyattn::cpu {
namespace {

// Registers 0 to 3: the query, then O. 4, 5: K; 4: P. 6, 7: scores, then V.
class FewShapes {
 public:
  FewShapes() {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    static_assert(sizeof shapes == 64);
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
  }
  ~FewShapes() { __asm__ volatile("tilerelease" ::: "memory"); }
  FewShapes(const FewShapes&) = delete;
  FewShapes& operator=(const FewShapes&) = delete;
};

// kKeyTiles, kValueTiles: registers a row of K and of V takes, of 32 elements each.
template <class Rows, int kKeyTiles, int kValueTiles>
struct FewAttention : TileSoftmax<Rows, 4> {
  using Base = TileSoftmax<Rows, 4>;
  using Base::count;
  using Base::current;
  using Base::fetch_until;
  using Base::padded_count;
  using Base::split;
  using Base::steps;
  using Base::u;
  using Base::w;
  using typename Base::Share;

  static constexpr int kGroups = kStepKeys / 16;
  static constexpr int kGroupBytes = 16 * 64;  // of the weights of 16 keys
  static constexpr int kScoreShare = 12, kSoftmaxShare = 2, kAddShare = 18;
  static_assert(kScoreShare + kSoftmaxShare + kAddShare == 32);
  // O of even dims by rows, of odd ones, then twice what rounding left: [16][kSumStride].
  static constexpr int kSumStride = kValueTiles * 16;
  float* sums() const { return w.out + 4 * w.out_stride; }

  explicit FewAttention(const Unit& unit) : Base(unit) {}

  // Calls f(constant 0), f(constant 1), ... below kCount.
  template <int kCount, int kFrom = 0, class F>
  static void each(const F& f) {
    if constexpr (kFrom < kCount) {
      f(Constant<kFrom>{});
      each<kCount, kFrom + 1>(f);
    }
  }
  template <int kValue>
  struct Constant {
    static constexpr int value = kValue;
  };

  // ---- scores: [keys][4 rows]

  void score() {
    RowTile keys[kGroups];
    const int groups = padded_count() / 16;
    const Share share(0, kScoreShare, groups);
    const auto prepare = [&](int g) {
      keys[g] = this->key_tile(g * 16);
      keys[g + 1] = g * 16 + 16 < count ? this->key_tile(g * 16 + 16) : keys[g];
    };
    each<kKeyTiles>([&](auto d) { tile_load<d.value>(w.q + d.value * 1024, 64); });
    prepare(0);
    for (int g = 0; g < groups; g += 2) {
      fetch_until(share.until(g));
      if (g + 2 < groups) prepare(g + 2);  // a register takes rows later than they were written
      tile_zero<6>();
      tile_zero<7>();
      each<kKeyTiles>([&](auto d) {
        if (d.value == kKeyTiles / 2) fetch_until(share.until(g + 1));
        tile_load<4>(keys[g].at + d.value * 64, keys[g].stride);
        tile_dot<6, 4, d.value>();
        tile_load<5>(keys[g + 1].at + d.value * 64, keys[g + 1].stride);
        tile_dot<7, 5, d.value>();
      });
      // Rows overlap: each one's unused columns are overwritten by the next.
      tile_store<6>(w.scores + g * 64, 16);
      tile_store<7>(w.scores + g * 64 + 64, 16);
    }
  }

  // ---- weights: [groups][even and odd of each part][4 rows][16 keys], a cell a key

  template <class Bits>
  void pack(int part, int key, int i, const Bits& bits, uint32_t) const {
    const __m512i rows01 = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512i rows23 = _mm512_add_epi32(rows01, _mm512_set1_epi32(2));
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (int group = 0; group < 2; ++group, i += 4) {
      char* to = w.weights + (key / 16 + group) * kGroupBytes + part * 512;
      const __m512i a = bits(i), b = bits(i + 1), c = bits(i + 2), d = bits(i + 3);
      const __m512i ab01 = _mm512_permutex2var_epi32(a, rows01, b), cd01 = _mm512_permutex2var_epi32(c, rows01, d);
      const __m512i ab23 = _mm512_permutex2var_epi32(a, rows23, b), cd23 = _mm512_permutex2var_epi32(c, rows23, d);
      const auto put = [&](int row, __m512i cells) {
        _mm512_store_si512(to + row * 64, _mm512_srli_epi32(cells, 16));
        _mm512_store_si512(to + row * 64 + 256, _mm512_and_si512(cells, high));
      };
      put(0, _mm512_shuffle_i32x4(ab01, cd01, 0x44));
      put(1, _mm512_shuffle_i32x4(ab01, cd01, 0xee));
      put(2, _mm512_shuffle_i32x4(ab23, cd23, 0x44));
      put(3, _mm512_shuffle_i32x4(ab23, cd23, 0xee));
    }
  }

  void rescale(uint32_t row, __m512 factor) const {
    for (uint32_t r = row; r < 16; r += 4) Base::scale_row(sums() + r * kSumStride, kSumStride, factor);
  }

  // ---- O += P V

  // 16 rows of V from `t` on; keys outside [first, stop) are out of sight of the token.
  RowTile value_tile(int t, int first, int stop) const {
    return this->row_tile(steps[current].v, t, first, stop, kValueTiles * 32, w.v_pairs, kValueTiles * 64);
  }
  // `next`: the tile of the first 16 keys.
  void add_values(RowTile next, int first, int stop) {
    constexpr int64_t kSumBytes = kSumStride * 4;
    const int groups = padded_count() / 16;
    const Share share(kScoreShare + kSoftmaxShare, kAddShare, groups);
    each<kValueTiles>([&](auto d) { tile_load<d.value>(sums() + d.value * 16, kSumBytes); });
    for (int g = 0; g < groups; ++g) {
      fetch_until(share.until(g));
      const RowTile v = next;
      if (g + 1 < groups) next = value_tile(g * 16 + 16, first, stop);
      tile_load<4>(w.weights + g * kGroupBytes, 64);
      each<kValueTiles>([&](auto d) {
        constexpr int kV = 6 + d.value % 2;
        tile_load<kV>(v.at + d.value * 64, v.stride);
        tile_dot<d.value, 4, kV>();
      });
    }
    each<kValueTiles>([&](auto d) { tile_store<d.value>(sums() + d.value * 16, kSumBytes); });
  }

  // Even and odd dims to rows of O in their order. False where a sum is not finite.
  bool settle() const {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    constexpr int kNanOrInfinity = 0x99;
    const bool mixed = is_mixed<Rows>(u.head_size_v);
    __mmask16 special = 0;
    for (uint32_t row = 0; row < w.rows; ++row) {
      alignas(64) float places[kValueTiles * 32];
      const __m512 factor = _mm512_set1_ps(this->settling(row));
      for (int i = 0; i < kSumStride; i += 16) {
        const float* from = sums() + row * kSumStride + i;
        const __m512 even = _mm512_add_ps(_mm512_load_ps(from), _mm512_load_ps(from + 8 * kSumStride));
        const __m512 odd = _mm512_add_ps(_mm512_load_ps(from + 4 * kSumStride), _mm512_load_ps(from + 12 * kSumStride));
        special |= _mm512_fpclass_ps_mask(even, kNanOrInfinity) | _mm512_fpclass_ps_mask(odd, kNanOrInfinity);
        _mm512_store_ps(places + 2 * i, _mm512_mul_ps(_mm512_permutex2var_ps(even, low, odd), factor));
        _mm512_store_ps(places + 2 * i + 16, _mm512_mul_ps(_mm512_permutex2var_ps(even, high, odd), factor));
      }
      float* out = w.out + size_t{row} * w.out_stride;
      for (uint32_t i = 0; i < kValueTiles * 32; i += 8) __builtin_memcpy(out + (mixed ? mixed_source(i) : i), places + i, 32);
      w.row_max[row] *= kLn2;
    }
    return special == 0;
  }

  // False where V needs pairs.
  bool run(int32_t* bad) {
    const FewShapes shapes;
    __builtin_memset(sums(), 0, 16 * kSumStride * 4);
    __builtin_memset(w.weights, 0, kGroups * kGroupBytes);
    *bad = this->walk([&](int64_t, bool all, bool plain) {
      score();
      fetch_until(Share(kScoreShare, kSoftmaxShare, 1).until(0));
      const int first = all ? 0 : w.begin[0], stop = all ? count : w.end[0];
      const RowTile values = value_tile(0, first, stop);
      this->softmax(0, plain, *this);
      add_values(values, first, stop);
    });
    return *bad != 0 || settle();
  }
};

template <class Rows, int kKeyTiles, int kValueTiles>
int32_t attend_few(const Unit& unit) {
  int32_t bad = 0;
  {
    FewAttention<Rows, kKeyTiles, kValueTiles> few(unit);
    if (few.run(&bad)) {
      if (!bad) finish(unit, few.w);
      return bad;
    }
  }
  return TileAttention<Rows, 4>(unit).run();
}

template <class Rows>
int32_t attend_tiles(const Unit* unit) {
  const Unit& u = *unit;
  if (u.tokens * u.heads > 4) return TileAttention<Rows, 16>(u).run();
  if (u.tokens == 1 && u.q_size[1] == 0 && u.q_size[0] == u.head_size_v) {
    if (u.head_size_v == 128) return attend_few<Rows, 4, 4>(u);
    if (u.head_size_v == 64) return attend_few<Rows, 2, 2>(u);
  }
  return TileAttention<Rows, 4>(u).run();
}

}  // namespace
}  // namespace anyattn::cpu
