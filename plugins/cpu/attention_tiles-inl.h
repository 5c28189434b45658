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

// Rows are fetched in the order of their use (K of a step, then V), all the time: memory is idle while nothing is asked of it,
// and a burst holds up the loads behind it. So each phase of a step fetches the share of rows that is its share of the time;
// at the start of a step kLead rows are on their way. All in 1/16 of a step's keys; the shares add up to K and V.
constexpr int kLead = 16, kScoreShare = 12, kSoftmaxShare = 2, kPairShare = 8, kAddShare = 10;
static_assert(kScoreShare + kSoftmaxShare + kPairShare + kAddShare == 32);

// Scratch of a unit; R = rows padded to 16, D and V = padded row lengths.
struct TileWorkspace : RowState {
  TileWorkspace(const Unit& u, uint32_t block_rows)
      : RowState(u),
        head_size(u.q_size[0] + u.q_size[1]),
        k_stride(padded_row(head_size)),
        blocks((rows + block_rows - 1) / block_rows),
        stored_rows(blocks * block_rows) {
    char* at = u.scratch;
    const auto take = [&](size_t bytes) {
      char* piece = at;
      at += bytes;
      return piece;
    };
    const size_t numbers = size_t{padded(rows, 16)} * 4;
    out = reinterpret_cast<float*>(take(size_t{stored_rows} * out_stride * 4));
    q = take(size_t{blocks} * 16 * k_stride * 2);
    scores = reinterpret_cast<float*>(take(size_t{stored_rows} * kStepKeys * 4 + 64));
    weights = take(size_t{stored_rows} * kStepKeys * 4);
    k_rows = take(size_t{kStepKeys} * k_stride * 2);
    v_pairs = take(size_t{kStepKeys} * out_stride * 2);
    row_max = reinterpret_cast<float*>(take(numbers));
    row_sum = reinterpret_cast<float*>(take(numbers));
    rounded_sum = reinterpret_cast<float*>(take(numbers));
    begin = reinterpret_cast<int32_t*>(take(numbers));
    end = reinterpret_cast<int32_t*>(take(numbers));
    distances = reinterpret_cast<float*>(take(kStepKeys * 4));
    k_scales = reinterpret_cast<float*>(take(kStepKeys * 4));
    v_scales = reinterpret_cast<float*>(take(kStepKeys * 4));
  }
  float* scores_of(uint32_t block, uint32_t block_rows) const { return scores + size_t{block} * block_rows * kStepKeys; }
  char* weights_of(uint32_t block, uint32_t block_rows) const { return weights + size_t{block} * block_rows * kStepKeys * 4; }
  uint32_t head_size, k_stride, blocks, stored_rows;
  char* q;             // [blocks][D / 2][16 rows] pairs
  float* scores;       // [blocks][kStepKeys][rows of a block]
  char* weights;       // [blocks][2][rows of a block][kStepKeys] bf16: rounded, and what the rounding left
  char* k_rows;        // [kStepKeys][D] bf16, keys that cannot be read in place
  char* v_pairs;       // [kStepKeys / 2][V] pairs; columns within 32 as vpunpcklwd and vpunpckhwd leave them
  float* rounded_sum;  // [R] of the rounded weights
  int32_t* begin;      // [R] the row's keys of this step, [begin, end)
  int32_t* end;        // [R]
  float* distances;    // [kStepKeys], likewise the scales
  float* k_scales;
  float* v_scales;
};

// Rows of K, then of V, of one step.
struct StepRows {
  const char* rows[2 * kStepKeys];
  const char** k = rows;
  const char** v = rows + kStepKeys;
};

// kRows query rows stand side by side in a vector of 16 / kRows keys.
template <class Rows, int kRows>
struct TileAttention {
  static constexpr int kKeys = 16 / kRows;  // of a vector

  const Unit& u;
  const TileWorkspace w;
  const bool split;                // weights in two bf16 parts: an output of float32 asks for more than one part gives
  const bool aligned;              // groups of 16 keys never straddle blocks
  const int64_t k_bytes, v_bytes;  // to fetch of a row; no V where it is part of K
  StepRows steps[2];
  int current = 0;     // of steps
  int count = 0;       // keys of the current step
  int next_count = 0;  // and of the next
  int fetched = 0;     // rows of the current step and the next

  explicit TileAttention(const Unit& unit)
      : u(unit),
        w(unit, kRows),
        split(unit.out_kind == kF32),
        aligned(!unit.keys.table || (unit.keys.block_size % 16 == 0 && unit.key_begin % 16 == 0)),
        k_bytes(Rows::bytes(w.head_size)),
        v_bytes(unit.keys.k == unit.keys.v ? 0 : Rows::bytes(unit.head_size_v)) {}

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
    const size_t row_bytes = size_t{w.k_stride} * 2;
    for (uint32_t block = 0; block < w.blocks; ++block) {
      char* copy = w.k_rows;  // free until the first step
      __builtin_memset(copy, 0, 16 * row_bytes);
      for (uint32_t i = 0; i < kRows && block * kRows + i < w.rows; ++i) {
        const uint32_t row = block * kRows + i;
        char* to = copy + i * row_bytes;
        for (int part = 0; part < 2 && u.q_size[part]; ++part) {
          const size_t bytes = size_t{u.q_size[part]} * 2;
          __builtin_memcpy(to, u.q[part] + row / u.heads * u.q_token_bytes[part] + row % u.heads * u.q_head_bytes[part], bytes);
          to += bytes;
        }
      }
      for (size_t at = 0; at < row_bytes; at += 64) {
        Vec cells[16];
        for (int i = 0; i < 16; ++i) cells[i] = load(copy + static_cast<size_t>(i) * row_bytes + at, F32{});
        transpose(cells);
        char* to = w.q + (block * row_bytes + at) * 16;
        for (int i = 0; i < 16; ++i, to += 64) __builtin_memcpy(to, &cells[i], 64);
      }
    }
  }

  void start() {
    __builtin_memset(w.out, 0, size_t{w.stored_rows} * w.out_stride * 4);
    for (uint32_t row = 0; row < padded(w.rows, 16); ++row) {
      const bool sink = u.sinks && row < w.rows;
      w.row_max[row] = sink ? u.sinks[row % u.heads] * kLog2E : -__builtin_inff();
      w.row_sum[row] = w.rounded_sum[row] = sink ? 1.f : 0.f;
    }
  }

  // ---- K and V of a step

  static void fetch(const char* row, int64_t bytes) {
    for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch(row + b, _MM_HINT_T1);
  }
  // Fetches rows up to `until`, counted over K and V of this step and the next.
  void fetch_until(int until) {
    const int last = next_count ? 4 * kStepKeys : 2 * kStepKeys;
    for (until = until < last ? until : last; fetched < until; ++fetched) {
      const int row = fetched % (2 * kStepKeys);
      const StepRows& from = steps[fetched < 2 * kStepKeys ? current : current ^ 1];
      fetch(from.rows[row], row < kStepKeys ? k_bytes : v_bytes);
    }
  }
  // What one phase of a step fetches, in `parts` portions, after what those before it fetched.
  struct Share {
    Share(int before, int share, int parts)
        : from((kLead + before) * kStepKeys / 16), portion((share * kStepKeys / 16 << 8) / parts) {}
    int until(int part) const { return from + (((part + 1) * portion) >> 8); }
    int from, portion;
  };
  // Addresses of a step; behind its last key that key again, so that fetching needs no limits.
  bool find_step(int64_t key, int keys, StepRows& to) const {
    if (!find_rows(u.keys, key, keys, to)) return false;
    const char* const k_rest = keys ? to.k[keys - 1] : steps[current].k[0];
    const char* const v_rest = keys ? to.v[keys - 1] : steps[current].v[0];
    for (int i = keys; i < kStepKeys; ++i) to.k[i] = k_rest, to.v[i] = v_rest;
    return true;
  }

  // A row, or two rows as pairs, out of a format that is not bfloat16. Apart from the walk: its registers then hold the constants
  // of the conversion, which were made anew for every vector.
  static __attribute__((noinline)) void copy_row(const char* row, uint32_t size, char* to) {
    for (uint32_t at = 0; at < size; at += 32, to += 64) {
      const int n = size - at < 32 ? static_cast<int>(size - at) : 32;
      _mm512_store_si512(to, (__m512i)(n == 32 ? Rows::load_pairs(row, at) : Rows::load_pairs_n(row, at, n)));
    }
  }
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

  // Where 16 keys from `t` on can be read as a tile, and how far apart they lie.
  struct KeyTile {
    const char* at;
    int64_t stride;
  };
  KeyTile key_tile(int t) const {
    const StepRows& rows = steps[current];
    if (Rows::kInPlace && w.k_stride == w.head_size && t + 16 <= count) {
      const int64_t stride = rows.k[t + 1] - rows.k[t];
      bool straight = true;
      for (int i = 2; i < 16 && !aligned; ++i) straight &= rows.k[t + i] - rows.k[t + i - 1] == stride;
      if (straight) return {rows.k[t], stride};
    }
    char* to = w.k_rows + size_t(t) * w.k_stride * 2;
    for (int i = t; i < t + 16 && i < count; ++i) {
      char* row = w.k_rows + size_t(i) * w.k_stride * 2;
      if (!Rows::kInPlace) {
        copy_row(rows.k[i], w.head_size, row);
        continue;
      }
      for (uint32_t at = 0; at < w.k_stride; at += 32) {
        const int n = w.head_size - at < 32 ? static_cast<int>(w.head_size - at) : 32;
        _mm512_store_si512(row + size_t{at} * 2,
                           (__m512i)(n == 32 ? Rows::load_pairs(rows.k[i], at) : Rows::load_pairs_n(rows.k[i], at, n)));
      }
    }
    return {to, int64_t{w.k_stride} * 2};
  }

  // ---- S' = K Q': [keys][rows] of 32 keys and one or two blocks
  template <int kBlocks>
  void score_pair(const KeyTile* keys, int group, uint32_t block, const Share& share, int part) {
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
    KeyTile keys[kStepKeys / 16];
    const int groups = padded_count() / 16;
    for (int g = 0; g < groups; ++g) keys[g] = g * 16 < count ? key_tile(g * 16) : keys[g - 1];
    const int chunks = static_cast<int>(w.k_stride / 32);
    const Share share(0, kScoreShare, groups / 2 * chunks);
    for (int g = 0; g < groups; g += 2) {
      uint32_t block = 0;
      if constexpr (kRows == 16)
        for (; block + 2 <= w.blocks; block += 2) score_pair<2>(keys, g, block, share, g / 2 * chunks);
      if (block < w.blocks) score_pair<1>(keys, g, block, share, g / 2 * chunks);
    }
  }

  // ---- softmax of one block

  // Scores to base-2 logits where something stands between the two: scales of keys, cap, ALiBi, keys out of sight.
  void to_logits(int vectors, uint32_t block) {
    const uint32_t first_row = block * kRows;
    float* scores = w.scores_of(block, kRows);
    const __m512i begin = per_row(w.begin + first_row), end = per_row(w.end + first_row);
    float slopes[16] = {}, tokens[16] = {};
    if (u.alibi != kAlibiNone)
      for (uint32_t i = 0; i < kRows && first_row + i < w.rows; ++i) {
        slopes[i] = u.alibi_slopes[(first_row + i) % u.heads];
        tokens[i] = static_cast<float>((first_row + i) / u.heads);
      }
    const __m512 slope = per_row(slopes), token = per_row(tokens);
    for (int i = 0; i < vectors; ++i) {
      float* at = scores + i * 16;
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
    float* row_max = w.row_max + block * kRows;
    const __m512 before = per_row(row_max);
    const __mmask16 moved = _mm512_cmp_ps_mask(top, _mm512_add_ps(before, _mm512_set1_ps(kMaxSlack)), _CMP_GT_OQ);
    if (!moved) return before;
    const __m512 now = _mm512_mask_mov_ps(before, moved, top);
    store_rows(row_max, now);
    const __m512 kept = _mm512_mask_mov_ps(_mm512_set1_ps(1.f), moved, exp2(_mm512_sub_ps(before, now)));
    store_rows(w.row_sum + block * kRows, _mm512_mul_ps(kept, per_row(w.row_sum + block * kRows)));
    store_rows(w.rounded_sum + block * kRows, _mm512_mul_ps(kept, per_row(w.rounded_sum + block * kRows)));
    float factors[16];
    _mm512_storeu_ps(factors, kept);
    for (int r = 0; r < kRows; ++r) {
      if (factors[r] == 1.f) continue;
      float* out = w.out + (size_t{block} * kRows + static_cast<size_t>(r)) * w.out_stride;
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

  // Scores to weights, bf16 by rows; keys past `count` up to a multiple of 32 are out of sight and get 0.
  void softmax(uint32_t block, bool plain) {
    const int vectors = padded_count() / kKeys;
    float* scores = w.scores_of(block, kRows);
    char* weights = w.weights_of(block, kRows);
    if (!plain) to_logits(vectors, block);
    __m512 top[4];
    for (int i = 0; i < 4; ++i) top[i] = _mm512_load_ps(scores + i * 16);
    for (int i = 4; i < vectors; i += 4)
      for (int j = 0; j < 4; ++j) top[j] = _mm512_max_ps(_mm512_load_ps(scores + (i + j) * 16), top[j]);
    __m512 most = across_keys_max(_mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3])));
    const __m512 scale = _mm512_set1_ps(plain ? u.softmax_scale * kLog2E : 1.f);
    __m512 base = move_max(_mm512_mul_ps(most, scale), block);
    base =
        _mm512_mask_mov_ps(base, _mm512_cmp_ps_mask(base, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ), _mm512_setzero_ps());
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, rounded[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    // One vector of weights, rounded half up to the high 16 bits of each lane.
    const auto weight = [&](int i) {
      __m512 p = exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + i * 16), scale, base));
      sum[i % 2] = _mm512_add_ps(sum[i % 2], p);
      // A weight of 0 meets the scale of a row that holds a NaN: it stays 0.
      const __mmask16 weighs = Rows::kScaled ? _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_UQ) : __mmask16{0};
      if (Rows::kScaled) p = _mm512_maskz_mul_ps(weighs, p, per_key(w.v_scales, i * kKeys));
      const __m512i bits = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(p), half), high);
      __m512 whole = _mm512_castsi512_ps(bits);
      if (split) {
        const __m512 rest = _mm512_sub_ps(p, whole);
        _mm512_store_ps(scores + i * 16, rest);
        whole = p;
      }
      if (Rows::kScaled) whole = _mm512_maskz_div_ps(weighs, whole, per_key(w.v_scales, i * kKeys));
      rounded[i % 2] = _mm512_add_ps(rounded[i % 2], whole);
      return bits;
    };
    for (int i = 0, key = 0; i < vectors; i += 32 / kKeys, key += 32) pack_weights(weights + key * 2, i, weight);
    if (split)
      for (int i = 0, key = 0; i < vectors; i += 32 / kKeys, key += 32)
        pack_weights(weights + (kRows * kStepKeys + key) * 2, i,
                     [&](int at) { return _mm512_add_epi32(_mm512_load_si512(scores + at * 16), half); });
    const auto add = [&](float* to, __m512 more) { store_rows(to, _mm512_add_ps(per_row(to), across_keys_sum(more))); };
    add(w.row_sum + block * kRows, _mm512_add_ps(sum[0], sum[1]));
    add(w.rounded_sum + block * kRows, _mm512_add_ps(rounded[0], rounded[1]));
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

  // ---- the walk

  // Do all rows see all keys of the step?
  bool see_all(int64_t key) const {
    bool all = true;
    for (uint32_t t = 0; t < u.tokens; ++t) all &= u.visible_begin[t] <= key && u.visible_end[t] >= key + count;
    return all;
  }
  // Which keys of the step each row sees.
  void see(int64_t key) {
    uint32_t row = 0;
    for (uint32_t t = 0; t < u.tokens; ++t) {
      const int64_t begin = u.visible_begin[t] - key, end = u.visible_end[t] - key;
      for (uint32_t head = 0; head < u.heads; ++head, ++row) {
        w.begin[row] = begin < 0 ? 0 : begin > count ? count : static_cast<int32_t>(begin);
        w.end[row] = end < 0 ? 0 : end > count ? count : static_cast<int32_t>(end);
      }
    }
    for (; row < padded(w.rows, 16); ++row) w.begin[row] = 0, w.end[row] = count;
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

  int padded_count() const { return (count + 31) / 32 * 32; }

  int32_t run() {
    const TileShapes shapes(kRows);
    const auto keys_at = [&](int64_t key) {
      const int64_t left = u.key_end - key;
      return left < kStepKeys ? static_cast<int>(left > 0 ? left : 0) : kStepKeys;
    };
    next_count = keys_at(u.key_begin);
    if (next_count && !find_step(u.key_begin, next_count, steps[1])) return 1;
    fetched = 2 * kStepKeys;  // those of the step before the first
    fetch_until(fetched + kLead * kStepKeys / 16);
    turn_query();
    start();
    for (int64_t key = u.key_begin; key < u.key_end; key += kStepKeys) {
      current ^= 1;
      fetched -= 2 * kStepKeys;
      count = next_count, next_count = keys_at(key + kStepKeys);
      if (!find_step(key + kStepKeys, next_count, steps[current ^ 1])) return 1;
      const bool all = see_all(key);
      const bool plain = all && count % 32 == 0 && !Rows::kScaled && !(u.soft_cap > 0) && u.alibi == kAlibiNone;
      if (!plain) see(key);
      if (u.alibi != kAlibiNone) find_distances<kStepKeys>(u, key, count, w.distances);
      if (Rows::kScaled)
        for (int i = 0; i < kStepKeys; ++i) {
          w.k_scales[i] = i < count ? Rows::scale(steps[current].k[i], w.head_size) : 1.f;
          w.v_scales[i] = i < count ? Rows::scale(steps[current].v[i], u.head_size_v) : 1.f;
        }
      score();
      const Share share(kScoreShare, kSoftmaxShare, static_cast<int>(w.blocks));
      for (uint32_t block = 0; block < w.blocks; ++block) {
        fetch_until(share.until(static_cast<int>(block)));
        softmax(block, plain);
      }
      pair_values();
      if (all || values_are_finite())
        add_values();
      else
        add_seen_values();
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
