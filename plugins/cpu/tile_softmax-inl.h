// SPDX-License-Identifier: Apache-2.0
// Online softmax of turned scores: a vector holds one key of 16 rows, or four keys of 4, so that maxima and sums need no step
// across lanes. Compiled once per instruction set; included by the tile kernels.
//
// Exponents are base 2. A row's reference maximum moves only when a step exceeds it by 2^8: weights then stay below 2^8, their
// relative error is the same, and O is almost never rescaled. Weights are rounded to bfloat16 (a float32 output takes what the
// rounding left as a second product); O is divided by the sum of the rounded ones, so equal values come out exactly, while the
// log-sum-exp takes the sum before rounding.
#pragma once
#include "tile_unit-inl.h"

namespace anyattn::cpu {
namespace {

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

template <class Rows, int kRows>
struct TileSoftmax : TileUnit<Rows, kRows> {
  using TileUnit<Rows, kRows>::split;
  using TileUnit<Rows, kRows>::u;
  using TileUnit<Rows, kRows>::w;
  using TileUnit<Rows, kRows>::padded_count;
  using TileUnit<Rows, kRows>::TileUnit;
  static constexpr int kKeys = 16 / kRows;  // of a vector

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
    return kRows == 16 ? _mm512_set1_ps(from[key])
                       : _mm512_permutexvar_ps(lane_key(), _mm512_castps128_ps512(_mm_loadu_ps(from + key)));
  }

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

  static void scale_row(float* row, uint32_t size, __m512 factor) {
    for (uint32_t i = 0; i < size; i += 16) _mm512_store_ps(row + i, _mm512_mul_ps(_mm512_load_ps(row + i), factor));
  }
  void rescale(uint32_t row, __m512 factor) const { scale_row(w.out + size_t{row} * w.out_stride, w.out_stride, factor); }

  // Moves the reference maximum of rows whose step exceeds it by the slack; their sums and, by kernel.rescale, their O shrink.
  // Gives the maxima.
  template <class Kernel>
  __m512 move_max(__m512 top, uint32_t block, const Kernel& kernel) {
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
    for (uint32_t r = 0; r < kRows; ++r)
      if (factors[r] != 1.f) kernel.rescale(block * kRows + r, _mm512_set1_ps(factors[r]));
    return now;
  }

  // Scores to weights; keys past `count` up to a multiple of 32 are out of sight and get 0. The weights of 32 keys from `key`
  // on go to kernel.pack(part, key, i, bits) in the high halves of what bits(i), bits(i + 1), ... give, once each and in this
  // order. Part 1 is what rounding left, where the kernel asks for it.
  template <class Kernel>
  void softmax(uint32_t block, bool plain, const Kernel& kernel) {
    const int vectors = padded_count() / kKeys;
    float* scores = w.scores_of(block, kRows);
    if (!plain) to_logits(vectors, block);
    __m512 top[4];
    for (int i = 0; i < 4; ++i) top[i] = _mm512_load_ps(scores + i * 16);
    for (int i = 4; i < vectors; i += 4)
      for (int j = 0; j < 4; ++j) top[j] = _mm512_max_ps(_mm512_load_ps(scores + (i + j) * 16), top[j]);
    __m512 most = across_keys_max(_mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3])));
    const __m512 scale = _mm512_set1_ps(plain ? u.softmax_scale * kLog2E : 1.f);
    __m512 base = move_max(_mm512_mul_ps(most, scale), block, kernel);
    base =
        _mm512_mask_mov_ps(base, _mm512_cmp_ps_mask(base, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ), _mm512_setzero_ps());
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, rounded[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    alignas(64) float inverses[kStepKeys];  // of the scales of V
    if (Rows::kScaled)
      for (int i = 0; i < kStepKeys; i += 16)
        _mm512_store_ps(inverses + i, _mm512_div_ps(_mm512_set1_ps(1.f), _mm512_load_ps(w.v_scales + i)));
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
      if (Rows::kScaled) whole = _mm512_maskz_mul_ps(weighs, whole, per_key(inverses, i * kKeys));
      rounded[i % 2] = _mm512_add_ps(rounded[i % 2], whole);
      return bits;
    };
    for (int i = 0, key = 0; i < vectors; i += 32 / kKeys, key += 32) kernel.pack(0, key, i, weight, block);
    if (split)
      for (int i = 0, key = 0; i < vectors; i += 32 / kKeys, key += 32)
        kernel.pack(1, key, i, [&](int at) { return _mm512_add_epi32(_mm512_load_si512(scores + at * 16), half); }, block);
    const auto add = [&](float* to, __m512 more) { store_rows(to, _mm512_add_ps(per_row(to), across_keys_sum(more))); };
    add(w.row_sum + block * kRows, _mm512_add_ps(sum[0], sum[1]));
    add(w.rounded_sum + block * kRows, _mm512_add_ps(rounded[0], rounded[1]));
  }

  // What turns a row's division by the sum into one by the sum of the rounded weights.
  float settling(uint32_t row) const { return w.row_sum[row] == 0.f ? 0.f : w.row_sum[row] / w.rounded_sum[row]; }
};

}  // namespace
}  // namespace anyattn::cpu
