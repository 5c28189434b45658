// SPDX-License-Identifier: Apache-2.0
// Attention of one unit on AMX: bfloat16 queries against rows that are exactly bfloat16. Serves decode, prefill, encoders and
// MLA; the same contract as attend() in attention-inl.h.
//
//   for each step of kStepKeys keys:   V -> pairs of keys side by side
//     for each block of 16 query rows: S' = K Q'  (keys x rows)  -> softmax down the columns -> P -> O = O + P V
//
// Scores stand turned: K rows are the left operand straight from the cache, the query is turned once a unit, and a vector
// holds one key of 16 rows (or four keys of 4), so that maxima and sums need no step across lanes. Exponents are base 2.
// A row's reference maximum moves only when a step exceeds it by 2^8: weights then stay below 2^8, their relative error is
// the same, and O is almost never rescaled. Weights are rounded to bfloat16 (a float32 output takes what the rounding left as
// a second product); O is divided by the sum of the rounded ones, so equal values come out exactly, while the log-sum-exp takes
// the sum before rounding.
#pragma once
#include "keys-inl.h"
#include "softmax-inl.h"
#include "tiles-inl.h"

namespace anyattn::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;
constexpr float kMaxSlack = 8.f;  // how far, in powers of 2, a score may exceed the reference maximum

// 2^t: 2^round(t) * P(t - round(t)), relative error below 8e-8 (P: 2.2e-8, minimax by Remez); 2^-inf is 0.
inline __m512 exp2(__m512 t) {
  const __m512 f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(1.5594677824992687e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3406643411144614e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.617692790925503e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5503103882074356e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022652208805084e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472420692444e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
  return _mm512_scalef_ps(p, _mm512_sub_ps(t, f));
}

// Scratch of a unit; R = rows padded to 16, D and V = padded row lengths.
struct TileWorkspace : RowState {
  explicit TileWorkspace(const Unit& u)
      : RowState(u), head_size(u.q_size[0] + u.q_size[1]), k_stride(padded_row(head_size)), blocks((rows + 15) / 16) {
    char* at = u.scratch;
    const auto take = [&](size_t bytes) {
      char* piece = at;
      at += bytes;
      return piece;
    };
    out = reinterpret_cast<float*>(take(size_t{blocks} * 16 * out_stride * 4));
    q = take(size_t{blocks} * 16 * k_stride * 2 + 64);
    scores = reinterpret_cast<float*>(take(kStepKeys * 64 + 64));
    weights = take(2 * 16 * kStepKeys * 2);
    k_rows = take(size_t{kStepKeys} * k_stride * 2);
    v_pairs = take(size_t{kStepKeys} * out_stride * 2);
    row_max = reinterpret_cast<float*>(take(size_t{blocks} * 64));
    row_sum = reinterpret_cast<float*>(take(size_t{blocks} * 64));
    rounded_sum = reinterpret_cast<float*>(take(size_t{blocks} * 64));
    begin = reinterpret_cast<int32_t*>(take(size_t{blocks} * 64));
    end = reinterpret_cast<int32_t*>(take(size_t{blocks} * 64));
    distances = reinterpret_cast<float*>(take(kStepKeys * 4));
    k_scales = reinterpret_cast<float*>(take(kStepKeys * 4));
    v_scales = reinterpret_cast<float*>(take(kStepKeys * 4));
  }
  uint32_t head_size, k_stride, blocks;
  char* q;             // [blocks][D / 2][rows of a block] pairs
  float* scores;       // [kStepKeys][rows of a block]; of one block, as are the weights
  char* weights;       // [2][rows of a block][kStepKeys] bf16: rounded, and what the rounding left
  char* k_rows;        // [kStepKeys][D] bf16, keys that cannot be read in place
  char* v_pairs;       // [kStepKeys / 2][V] pairs; columns within 32 as vpunpcklwd and vpunpckhwd leave them
  float* rounded_sum;  // [R] of the rounded weights
  int32_t* begin;      // [R] the row's keys of this step, [begin, end)
  int32_t* end;        // [R]
  float* distances;    // [kStepKeys], likewise the scales
  float* k_scales;
  float* v_scales;
};

struct StepRows {
  const char* k[kStepKeys];
  const char* v[kStepKeys];
};

// kRows query rows stand side by side in a vector of 16 / kRows keys.
template <class Rows, int kRows>
struct TileAttention {
  static constexpr int kKeys = 16 / kRows;  // of a vector

  const Unit& u;
  const TileWorkspace w;
  const bool split;  // weights in two bf16 parts: an output of float32 asks for more than one part gives
  StepRows steps[2];

  explicit TileAttention(const Unit& unit) : u(unit), w(unit), split(unit.out_kind == kF32) {}

  static __m512i lane_row() {
    return _mm512_and_si512(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                            _mm512_set1_epi32(kRows - 1));
  }
  static __m512i lane_key() {
    return kRows == 16 ? _mm512_setzero_si512() : _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  }
  // A number of each row of the block, in every lane of that row.
  static __m512 per_row(const float* from) {
    return kRows == 16 ? _mm512_loadu_ps(from) : _mm512_broadcast_f32x4(_mm_loadu_ps(from));
  }
  static __m512i per_row(const int32_t* from) {
    return kRows == 16 ? _mm512_loadu_si512(from)
                       : _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // A number of each key from `key` on, in every lane of that key.
  static __m512 per_key(const float* from, int key) {
    return kRows == 16 ? _mm512_set1_ps(from[key]) : _mm512_permutexvar_ps(lane_key(), _mm512_loadu_ps(from + key));
  }

  // ---- the query, once a unit: [D / 2][rows] pairs of each block, zeros behind
  void turn_query() {
    __builtin_memset(w.q, 0, size_t{w.blocks} * 16 * w.k_stride * 2 + 64);
    for (uint32_t row = 0; row < w.rows; ++row) {
      uint32_t* to = reinterpret_cast<uint32_t*>(w.q) + size_t{row / 16} * 16 * (w.k_stride / 2) + row % 16;
      for (int part = 0; part < 2 && u.q_size[part]; ++part) {
        const char* from = u.q[part] + row / u.heads * u.q_token_bytes[part] + row % u.heads * u.q_head_bytes[part];
        for (uint32_t i = 0; i < u.q_size[part] / 2; ++i, to += kRows) __builtin_memcpy(to, from + size_t{i} * 4, 4);
      }
    }
  }

  void start() {
    __builtin_memset(w.out, 0, size_t{w.blocks} * 16 * w.out_stride * 4);
    for (uint32_t row = 0; row < w.blocks * 16; ++row) {
      const bool sink = u.sinks && row < w.rows;
      w.row_max[row] = sink ? u.sinks[row % u.heads] * kLog2E : -__builtin_inff();
      w.row_sum[row] = w.rounded_sum[row] = sink ? 1.f : 0.f;
    }
  }

  // ---- K and V of a step

  static void fetch(const char* row, int64_t bytes) {
    for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch(row + b, _MM_HINT_T0);
  }

  // Pairs of V rows side by side; rows past `count` up to a multiple of 32 are zero. Fetches the next step's rows.
  void pair_values(const StepRows& rows, int count, const StepRows* next, int next_count) {
    const int64_t v_bytes = Rows::bytes(u.head_size_v);
    const int stop = (count + 31) / 32 * 32;
    for (int t = 0; t < stop; t += 2) {
      char* to = w.v_pairs + size_t(t / 2) * w.out_stride * 4;
      if (next && t < next_count) {
        fetch(next->v[t], v_bytes);
        if (t + 1 < next_count) fetch(next->v[t + 1], v_bytes);
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

  // Where 16 keys from `t` on can be read as a tile, and how far apart they lie.
  struct KeyTile {
    const char* at;
    int64_t stride;
  };
  KeyTile key_tile(const StepRows& rows, int t, int count) const {
    if (Rows::kInPlace && w.k_stride == w.head_size && t + 16 <= count) {
      const int64_t stride = rows.k[t + 1] - rows.k[t];
      bool straight = true;
      for (int i = 2; i < 16; ++i) straight &= rows.k[t + i] - rows.k[t + i - 1] == stride;
      if (straight) return {rows.k[t], stride};
    }
    char* to = w.k_rows + size_t(t) * w.k_stride * 2;
    for (int i = t; i < t + 16 && i < count; ++i) {
      char* row = w.k_rows + size_t(i) * w.k_stride * 2;
      for (uint32_t at = 0; at < w.k_stride; at += 32) {
        const int n = w.head_size - at < 32 ? static_cast<int>(w.head_size - at) : 32;
        _mm512_store_si512(row + size_t{at} * 2,
                           (__m512i)(n == 32 ? Rows::load_pairs(rows.k[i], at) : Rows::load_pairs_n(rows.k[i], at, n)));
      }
    }
    return {to, int64_t{w.k_stride} * 2};
  }

  // ---- S' = K Q' of one block: [keys][rows]
  void score(const KeyTile* tiles, int groups, uint32_t block, const StepRows* next, int next_count) {
    const char* q = w.q + size_t{block} * 16 * w.k_stride * 2;
    constexpr int64_t kRowBytes = kRows * 4;
    const int64_t k_bytes = Rows::bytes(w.head_size);
    for (int g = 0; g < groups; g += 2) {
      for (int t = g * 16; next && t < g * 16 + 32 && t < next_count; ++t) fetch(next->k[t], k_bytes);
      const bool two = g + 1 < groups;
      tile_zero<kTileS0>();
      if (two) tile_zero<kTileS1>();
      for (uint32_t d = 0; d < w.k_stride; d += 32) {
        tile_load<kTileB>(q + size_t{d / 2} * kRowBytes, kRowBytes);
        tile_load<kTileK>(tiles[g].at + size_t{d} * 2, tiles[g].stride);
        tile_dot<kTileS0, kTileK, kTileB>();
        if (!two) continue;
        tile_load<kTileK>(tiles[g + 1].at + size_t{d} * 2, tiles[g + 1].stride);
        tile_dot<kTileS1, kTileK, kTileB>();
      }
      // Rows of a narrow block overlap: each one's unused columns are overwritten by the next, the last one's by the next tile.
      char* to = reinterpret_cast<char*>(w.scores) + g * 16 * kRowBytes;
      tile_store<kTileS0>(to, kRowBytes);
      if (two) tile_store<kTileS1>(to + 16 * kRowBytes, kRowBytes);
    }
  }

  // ---- softmax of one block

  // Scores to base-2 logits where something stands between the two: scales of keys, cap, ALiBi, keys out of sight.
  void to_logits(int vectors, uint32_t block) {
    const uint32_t first_row = block * 16;
    const __m512i begin = per_row(w.begin + first_row), end = per_row(w.end + first_row);
    float slopes[16] = {}, tokens[16] = {};
    if (u.alibi != kAlibiNone)
      for (uint32_t i = 0; i < 16 && first_row + i < w.rows; ++i) {
        slopes[i] = u.alibi_slopes[(first_row + i) % u.heads];
        tokens[i] = static_cast<float>((first_row + i) / u.heads);
      }
    const __m512 slope = per_row(slopes), token = per_row(tokens);
    for (int i = 0; i < vectors; ++i) {
      float* at = w.scores + i * 16;
      Vec s = (Vec)_mm512_load_ps(at);
      if (Rows::kScaled) s *= (Vec)per_key(w.k_scales, i * kKeys);
      Vec distance{};
      if (u.alibi != kAlibiNone) distance = (Vec)per_key(w.distances, i * kKeys) - (Vec)token;
      s = logits(u, s, (Vec)slope, distance) * kLog2E;
      const __m512i key = _mm512_add_epi32(lane_key(), _mm512_set1_epi32(i * kKeys));
      const __mmask16 seen = _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(begin, key), key, end);
      _mm512_store_ps(at, _mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), seen, (__m512)s));
    }
  }

  static __m512 across_keys_max(__m512 a) {
    if (kRows == 16) return a;
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    return _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
  }
  static __m512 across_keys_sum(__m512 a) {
    if (kRows == 16) return a;
    a = _mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    return _mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
  }
  static void store_rows(float* to, __m512 a) {
    if (kRows == 16)
      _mm512_store_ps(to, a);
    else
      _mm_store_ps(to, _mm512_castps512_ps128(a));
  }

  // Moves the reference maximum of rows whose step exceeds it by the slack; their O and sums shrink. Gives the maxima.
  __m512 move_max(__m512 top, uint32_t block) {
    float* row_max = w.row_max + block * 16;
    const __m512 before = per_row(row_max);
    const __mmask16 moved = _mm512_cmp_ps_mask(top, _mm512_add_ps(before, _mm512_set1_ps(kMaxSlack)), _CMP_GT_OQ);
    if (!moved) return before;
    const __m512 now = _mm512_mask_mov_ps(before, moved, top);
    store_rows(row_max, now);
    const __m512 kept = _mm512_mask_mov_ps(_mm512_set1_ps(1.f), moved, exp2(_mm512_sub_ps(before, now)));
    store_rows(w.row_sum + block * 16, _mm512_mul_ps(kept, per_row(w.row_sum + block * 16)));
    store_rows(w.rounded_sum + block * 16, _mm512_mul_ps(kept, per_row(w.rounded_sum + block * 16)));
    float factors[16];
    _mm512_storeu_ps(factors, kept);
    for (int r = 0; r < kRows; ++r) {
      if (factors[r] == 1.f) continue;
      float* out = w.out + (size_t{block} * 16 + static_cast<size_t>(r)) * w.out_stride;
      for (uint32_t i = 0; i < w.out_stride; i += 16)
        _mm512_store_ps(out + i, _mm512_mul_ps(_mm512_load_ps(out + i), _mm512_set1_ps(factors[r])));
    }
    return now;
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

  // Scores of `count` keys to weights, bf16 by rows; the last ones up to a multiple of 32 keys are out of sight and get 0.
  void softmax(int count, uint32_t block, bool plain) {
    const int vectors = (count + 31) / 32 * 32 / kKeys;
    if (!plain) to_logits(vectors, block);
    __m512 top[4];
    for (int i = 0; i < 4; ++i) top[i] = _mm512_load_ps(w.scores + i * 16);
    for (int i = 4; i < vectors; i += 4)
      for (int j = 0; j < 4; ++j) top[j] = _mm512_max_ps(_mm512_load_ps(w.scores + (i + j) * 16), top[j]);
    __m512 most = across_keys_max(_mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3])));
    const __m512 scale = _mm512_set1_ps(plain ? u.softmax_scale * kLog2E : 1.f);
    __m512 base = move_max(_mm512_mul_ps(most, scale), block);
    base =
        _mm512_mask_mov_ps(base, _mm512_cmp_ps_mask(base, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ), _mm512_setzero_ps());
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, rounded[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    // One vector of weights, rounded half up to the high 16 bits of each lane.
    const auto weight = [&](int i) {
      __m512 p = exp2(_mm512_fmsub_ps(_mm512_load_ps(w.scores + i * 16), scale, base));
      sum[i % 2] = _mm512_add_ps(sum[i % 2], p);
      // A weight of 0 meets the scale of a row that holds a NaN: it stays 0.
      const __mmask16 weighs = Rows::kScaled ? _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_UQ) : __mmask16{0};
      if (Rows::kScaled) p = _mm512_maskz_mul_ps(weighs, p, per_key(w.v_scales, i * kKeys));
      const __m512i bits = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(p), half), high);
      __m512 whole = _mm512_castsi512_ps(bits);
      if (split) {
        const __m512 rest = _mm512_sub_ps(p, whole);
        _mm512_store_ps(w.scores + i * 16, rest);
        whole = p;
      }
      if (Rows::kScaled) whole = _mm512_maskz_div_ps(weighs, whole, per_key(w.v_scales, i * kKeys));
      rounded[i % 2] = _mm512_add_ps(rounded[i % 2], whole);
      return bits;
    };
    for (int i = 0, key = 0; i < vectors; i += 32 / kKeys, key += 32) pack_weights(w.weights + key * 2, i, weight);
    if (split)
      for (int i = 0, key = 0; i < vectors; i += 32 / kKeys, key += 32)
        pack_weights(w.weights + (16 * kStepKeys + key) * 2, i,
                     [&](int at) { return _mm512_add_epi32(_mm512_load_si512(w.scores + at * 16), half); });
    const auto add = [&](float* to, __m512 more) { store_rows(to, _mm512_add_ps(per_row(to), across_keys_sum(more))); };
    add(w.row_sum + block * 16, _mm512_add_ps(sum[0], sum[1]));
    add(w.rounded_sum + block * 16, _mm512_add_ps(rounded[0], rounded[1]));
  }

  // ---- O += P V of one block
  template <int kColumns>
  void add_columns(float* out, uint32_t column, int count, const char* weights) {
    const int64_t out_bytes = int64_t{w.out_stride} * 4;
    tile_load<kTileO0>(out + column, out_bytes);
    if (kColumns > 1) tile_load<kTileO1>(out + column + 16, out_bytes);
    if (kColumns > 2) tile_load<kTileO2>(out + column + 32, out_bytes);
    for (int key = 0; key < count; key += 32) {
      const char* v = w.v_pairs + (size_t(key / 2) * w.out_stride + column) * 4;
      tile_load<kTileP>(weights + key * 2, kStepKeys * 2);
      tile_load<kTileB>(v, out_bytes);
      tile_dot<kTileO0, kTileP, kTileB>();
      if (kColumns > 1) {
        tile_load<kTileB>(v + 64, out_bytes);
        tile_dot<kTileO1, kTileP, kTileB>();
      }
      if (kColumns > 2) {
        tile_load<kTileB>(v + 128, out_bytes);
        tile_dot<kTileO2, kTileP, kTileB>();
      }
    }
    tile_store<kTileO0>(out + column, out_bytes);
    if (kColumns > 1) tile_store<kTileO1>(out + column + 16, out_bytes);
    if (kColumns > 2) tile_store<kTileO2>(out + column + 32, out_bytes);
  }
  void add_values(int count, uint32_t block, const char* weights) {
    float* out = w.out + size_t{block} * 16 * w.out_stride;
    uint32_t column = 0;
    for (; column + 48 <= w.out_stride; column += 48) add_columns<3>(out, column, count, weights);
    if (w.out_stride - column == 32) add_columns<2>(out, column, count, weights);
    if (w.out_stride - column == 16) add_columns<1>(out, column, count, weights);
  }

  // A weight of 0 does not undo a NaN or an infinity: rows that do not see such a value leave it out, key by key.
  bool values_are_finite(int count) const {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    const char* at = w.v_pairs;
    const char* stop = at + size_t((count + 31) / 32 * 16) * w.out_stride * 4;
    __mmask32 special = 0;
    for (; at < stop; at += 64) special |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_load_si512(at), exponent), exponent);
    return special == 0;
  }
  void add_seen_values(uint32_t block) {
    for (uint32_t row = block * 16; row < block * 16 + 16 && row < w.rows; ++row) {
      float* out = w.out + size_t{row} * w.out_stride;
      for (int t = w.begin[row]; t < w.end[row]; ++t) {
        const auto weight = [&](uint32_t first) {
          uint16_t bits;
          __builtin_memcpy(&bits, w.weights + ((first + row % 16) * kStepKeys + static_cast<uint32_t>(t)) * 2, 2);
          return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(uint32_t{bits} << 16)));
        };
        const __m512 p = split ? _mm512_add_ps(weight(0), weight(16)) : weight(0);
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

  // ---- the walk

  // Which keys of the step each row sees; true where every row sees all of them.
  bool see(int64_t key, int count) {
    bool all = true;
    for (uint32_t row = 0; row < w.blocks * 16; ++row) {
      w.begin[row] = 0, w.end[row] = count;
      if (row >= w.rows) continue;
      const int64_t begin = u.visible_begin[row / u.heads] - key, end = u.visible_end[row / u.heads] - key;
      w.begin[row] = begin < 0 ? 0 : begin > count ? count : static_cast<int32_t>(begin);
      w.end[row] = end < 0 ? 0 : end > count ? count : static_cast<int32_t>(end);
      all &= w.begin[row] == 0 && w.end[row] == count;
    }
    return all;
  }

  // O's columns back in order, and by row the factor that turns a division by the sum into one by the rounded sum.
  void settle() {
    for (uint32_t row = 0; row < w.rows; ++row) {
      float* out = w.out + size_t{row} * w.out_stride;
      const float sum = w.row_sum[row];
      const __m512 factor = _mm512_set1_ps(sum == 0.f ? 0.f : sum / w.rounded_sum[row]);
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
    turn_query();
    start();
    const auto keys_at = [&](int64_t key) {
      const int64_t left = u.key_end - key;
      return left < kStepKeys ? static_cast<int>(left > 0 ? left : 0) : kStepKeys;
    };
    if (!find_rows(u.keys, u.key_begin, keys_at(u.key_begin), steps[0])) return 1;
    int current = 0;
    for (int64_t key = u.key_begin; key < u.key_end; key += kStepKeys, current ^= 1) {
      const StepRows& rows = steps[current];
      const int count = keys_at(key), next_count = keys_at(key + kStepKeys);
      if (!find_rows(u.keys, key + kStepKeys, next_count, steps[current ^ 1])) return 1;
      const StepRows* next = next_count ? &steps[current ^ 1] : nullptr;
      const bool see_all = see(key, count);
      const bool plain = see_all && count % 32 == 0 && !Rows::kScaled && !(u.soft_cap > 0) && u.alibi == kAlibiNone;
      if (u.alibi != kAlibiNone) find_distances<kStepKeys>(u, key, count, w.distances);
      if (Rows::kScaled)
        for (int i = 0; i < kStepKeys; ++i) {
          w.k_scales[i] = i < count ? Rows::scale(rows.k[i], w.head_size) : 1.f;
          w.v_scales[i] = i < count ? Rows::scale(rows.v[i], u.head_size_v) : 1.f;
        }
      KeyTile tiles[kStepKeys / 16];
      const int groups = (count + 15) / 16;
      for (int g = 0; g < groups; ++g) tiles[g] = key_tile(rows, g * 16, count);
      pair_values(rows, count, next, next_count);
      const bool leave_out = !see_all && !values_are_finite(count);
      for (uint32_t block = 0; block < w.blocks; ++block) {
        score(tiles, groups, block, block == 0 ? next : nullptr, next_count);
        softmax(count, block, plain);
        if (leave_out)
          add_seen_values(block);
        else
          add_values(count, block, w.weights);
        if (!leave_out && split) add_values(count, block, w.weights + 16 * kStepKeys * 2);
      }
    }
    settle();
    finish(u, w);
    return 0;
  }
};

template <class Rows>
int32_t attend_tiles(const Unit* unit) {
  if (unit->tokens * unit->heads <= 4) return TileAttention<Rows, 4>(*unit).run();
  return TileAttention<Rows, 16>(*unit).run();
}

}  // namespace
}  // namespace anyattn::cpu
