// SPDX-License-Identifier: Apache-2.0
// Decode over rows of 8- and 4-bit codes on AMX in integers: up to four query rows of one token, a step of kStepKeys keys.
//
//   q -> 16-bit fixed point, high and low byte apart     S = K q  in int32, codes as they lie in the cache
//   S -> base-2 logits, softmax -> weights x scale of V -> 16-bit fixed point of the step's largest, two bytes again
//   O += P V  in int32, then float32 by step
//
// No code is turned into a float. Fixed point errs by 2^-16 of the largest element of q, and of the largest weight of a step;
// the bfloat16 a query comes in errs by 2^-9 of each. Zero points of 4-bit rows come off by q's sum and the weights' sum.
// Whatever else a unit may need (cap, ALiBi, more rows, float32 outputs) goes to the other tile kernels.
#pragma once
#include "attention_few-inl.h"
#include "quantised-inl.h"

namespace anyattn::cpu {
namespace {

constexpr float kFixedOne = 32512.f;  // 127 * 256: the high byte of what it stands for is 127 at most

// sums[i][j] += a[i][4k..4k+3] . b[k][4j..4j+3], signed bytes.
template <int kSums, int kA, int kB>
inline void tile_dot_bytes() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
}

// S: 16 keys x 8 sums (rows' high bytes, then low ones); K: 16 keys x 64 codes; Q0, Q1: 64 codes x 8 columns;
// O: 8 x 16 dims; P0, P1: 8 x 64 keys; V: 64 keys x 16 dims.
enum CodeTile : int { kCodeS = 0, kCodeK = 1, kCodeQ0 = 2, kCodeQ1 = 3, kCodeO = 4, kCodeP0 = 5, kCodeP1 = 6, kCodeV = 7 };

class CodeShapes {
 public:
  CodeShapes() {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {32, 64, 32, 32, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 8, 8, 8, 16};
    } shapes;
    static_assert(sizeof shapes == 64);
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
  }
  ~CodeShapes() { __asm__ volatile("tilerelease" ::: "memory"); }
  CodeShapes(const CodeShapes&) = delete;
  CodeShapes& operator=(const CodeShapes&) = delete;
};

template <int kSize>
constexpr bool is_four_bits(const Int4Rows<kSize>*) {
  return true;
}
constexpr bool is_four_bits(const Int8Rows*) { return false; }

// kSize: 64 or 128 values a row of K and of V.
template <class Rows, int kSize>
struct CodeAttention : TileSoftmax<Rows, 4> {
  using Base = TileSoftmax<Rows, 4>;
  using Base::count;
  using Base::current;
  using Base::fetched;
  using Base::next_count;
  using Base::steps;
  using Base::u;
  using Base::w;
  static constexpr bool kFourBits = is_four_bits(static_cast<const Rows*>(nullptr));
  static constexpr int kChunks = kSize / 64;           // vectors of codes a row
  static_assert(kStepKeys == 64 || kStepKeys == 128);  // one or two tiles of weights

  alignas(64) float k_zeros[kStepKeys];
  alignas(64) float v_zeros[kStepKeys];
  alignas(64) float q_factor[4];  // fixed-point dot products to base-2 logits, by row
  alignas(64) float q_sum[4];     // of the fixed-point query
  // [kStepKeys][8] int32, in the half of the pairs that bytes leave free.
  char* sums() const { return w.v_pairs + kStepKeys * kSize; }

  explicit CodeAttention(const Unit& unit) : Base(unit) {}

  // 64 codes of a row, one a byte. Of 4-bit rows the even elements come first, then the odd ones.
  static void load_codes(const char* row, __m512i (&codes)[kChunks]) {
    const __m512i nibble = _mm512_set1_epi8(15);
    if constexpr (!kFourBits) {
      for (int c = 0; c < kChunks; ++c) codes[c] = _mm512_loadu_si512(row + c * 64);
    } else if constexpr (kChunks == 2) {
      const __m512i bytes = _mm512_loadu_si512(row);
      codes[0] = _mm512_and_si512(bytes, nibble);
      codes[1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
    } else {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
      codes[0] = _mm512_and_si512(_mm512_inserti64x4(_mm512_castsi256_si512(bytes), _mm256_srli_epi16(bytes, 4), 1), nibble);
    }
  }
  // Where element d of a row stands among its codes.
  static int place_of(int d) { return kFourBits ? d / 2 + d % 2 * (kSize / 2) : d; }

  void fix_query() {
    __builtin_memset(w.q, 0, kSize * 8);
    for (uint32_t row = 0; row < 4; ++row) {
      q_factor[row] = q_sum[row] = 0.f;
      if (row >= w.rows) continue;
      float q[kSize];
      const char* from = u.q[0] + row * u.q_head_bytes[0];
      Vec top{};
      for (int d = 0; d < kSize; d += 16) {
        const Vec value = kFourBits ? load(from + d * 4, F32{}) : load(from + d * 2, BF16{});
        store(q + d, value);
        const Vec magnitude = (Vec)((WordVec)value & 0x7fffffffu);
        top = max(magnitude == magnitude ? magnitude : splat(__builtin_inff()), top);
      }
      const float most = largest(top);
      const bool finite = most < __builtin_inff();
      const float to_fixed = most > 0.f && finite ? kFixedOne / most : 0.f;
      int sum = 0;
      for (int d = 0; d < kSize; ++d) {
        const int fixed = finite ? static_cast<int>(__builtin_rintf(q[d] * to_fixed)) : 0;
        const int high = (fixed + 128) >> 8;
        sum += fixed;
        const int place = place_of(d);
        char* to = w.q + place / 4 * 32 + place % 4;
        to[row * 4] = static_cast<char>(high);
        to[16 + row * 4] = static_cast<char>(fixed - high * 256);
      }
      q_factor[row] = finite ? most / kFixedOne * u.softmax_scale * kLog2E : __builtin_nanf("");
      q_sum[row] = static_cast<float>(sum);
    }
  }

  // `rows` more of the next step, K first. Scales of V are read before V is: a whole step lies between fetch and use.
  void fetch_next(int rows) {
    const int until = fetched + rows < 2 * kStepKeys ? fetched + rows : 2 * kStepKeys;
    if (next_count && fetched < until) Base::fetch_rows(steps[current ^ 1], fetched, until);
    fetched = until;
  }

  void read_code_scales() {
    const StepRows& step = steps[current];
    constexpr uint32_t kScaleAt = static_cast<uint32_t>(kFourBits ? kSize / 2 : kSize);
    const __m512i zero = _mm512_set1_epi32(15);
    for (int i = 0; i < kStepKeys; i += 16) {
      const __m512i k = Base::row_words(step.k, step.k_apart, kScaleAt, i, 0);
      const __m512i v = Base::row_words(step.v, step.v_apart, kScaleAt, i, 0);
      _mm512_store_si512(w.k_scales + i, kFourBits ? _mm512_andnot_si512(zero, k) : k);
      _mm512_store_si512(w.v_scales + i, kFourBits ? _mm512_andnot_si512(zero, v) : v);
      if constexpr (kFourBits) {
        _mm512_store_ps(k_zeros + i, _mm512_cvtepi32_ps(_mm512_and_si512(k, zero)));
        _mm512_store_ps(v_zeros + i, _mm512_cvtepi32_ps(_mm512_and_si512(v, zero)));
      }
    }
  }

  void score() {
    const StepRows& rows = steps[current];
    for (int t = 0; t < count; t += 16) {
      fetch_next(8);
      const char* at = rows.k[t];
      int64_t stride = t + 16 <= count ? rows.k[t + 1] - rows.k[t] : 0;
      for (int i = 2; stride && i < 16 && !Base::aligned; ++i)
        if (rows.k[t + i] - rows.k[t + i - 1] != stride) stride = 0;
      if (kFourBits || !stride) {
        char* to = w.k_rows + t * kSize;
        at = to, stride = kSize;
        for (int i = t; i < t + 16 && i < count; ++i, to += kSize) {
          __m512i codes[kChunks];
          load_codes(rows.k[i], codes);
          for (int c = 0; c < kChunks; ++c) _mm512_store_si512(to + c * 64, codes[c]);
        }
      }
      tile_zero<kCodeS>();
      tile_load<kCodeK>(at, stride);
      tile_dot_bytes<kCodeS, kCodeK, kCodeQ0>();
      if (kChunks == 2) {
        tile_load<kCodeK>(at + 64, stride);
        tile_dot_bytes<kCodeS, kCodeK, kCodeQ1>();
      }
      tile_store<kCodeS>(sums() + t * 32, 32);
    }
  }

  // Four rows of V by bytes: [dims][4 keys]; dims within 64 as the unpacking leaves them. Rows past `count` are zero.
  void quad_values() {
    const StepRows& rows = steps[current];
    const int stop = (count + 63) / 64 * 64;
    for (int t = 0; t < stop; t += 4) {
      fetch_next(3);
      __m512i r[4][kChunks];
      for (int i = 0; i < 4; ++i) {
        if (t + i < count) {
          load_codes(rows.v[t + i], r[i]);
        } else {
          for (int c = 0; c < kChunks; ++c) r[i][c] = _mm512_setzero_si512();
        }
      }
      char* to = w.v_pairs + t * kSize;
      for (int c = 0; c < kChunks; ++c, to += 256) {
        const __m512i low01 = _mm512_unpacklo_epi8(r[0][c], r[1][c]), high01 = _mm512_unpackhi_epi8(r[0][c], r[1][c]);
        const __m512i low23 = _mm512_unpacklo_epi8(r[2][c], r[3][c]), high23 = _mm512_unpackhi_epi8(r[2][c], r[3][c]);
        _mm512_store_si512(to, _mm512_unpacklo_epi16(low01, low23));
        _mm512_store_si512(to + 64, _mm512_unpackhi_epi16(low01, low23));
        _mm512_store_si512(to + 128, _mm512_unpacklo_epi16(high01, high23));
        _mm512_store_si512(to + 192, _mm512_unpackhi_epi16(high01, high23));
      }
    }
  }

  // Sums to weights in two bytes, [8][kStepKeys] at w.weights: high bytes of the rows, then low ones. Gives by row, in every
  // key's lanes, what a unit of fixed point stands for; `zeros`: the weights' sum over zero points.
  __m512 softmax(__m512* zeros) {
    const int vectors = (count + 63) / 64 * 16;
    const __m512 factor = Base::per_row(q_factor), sum_q = Base::per_row(q_sum);
    const __m512 none = _mm512_set1_ps(-__builtin_inff());
    __m512 top[2] = {none, none};
    for (int i = 0; i < vectors; ++i) {
      if (i % 8 == 0) fetch_next(4);
      const __m512i a = _mm512_load_si512(sums() + i * 128), b = _mm512_load_si512(sums() + i * 128 + 64);
      const __m512 high = _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(a, b, 0x88));
      const __m512 low = _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(a, b, 0xdd));
      __m512 s = _mm512_fmadd_ps(high, _mm512_set1_ps(256.f), low);
      if constexpr (kFourBits) s = _mm512_fnmadd_ps(Base::per_key(k_zeros, i * 4), sum_q, s);
      s = _mm512_mul_ps(_mm512_mul_ps(s, factor), Base::per_key(w.k_scales, i * 4));
      if (i * 4 + 4 > count) {
        const __mmask16 there = _mm512_cmplt_epi32_mask(Base::lane_key(), _mm512_set1_epi32(count - i * 4));
        s = _mm512_mask_mov_ps(none, there, s);
      }
      _mm512_store_ps(w.scores + i * 16, s);
      top[i % 2] = _mm512_max_ps(s, top[i % 2]);
    }
    __m512 base = Base::move_max(Base::across_keys_max(_mm512_max_ps(top[0], top[1])), 0, *this);
    base = _mm512_mask_mov_ps(base, _mm512_cmp_ps_mask(base, none, _CMP_EQ_OQ), _mm512_setzero_ps());
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, most[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 poison = _mm512_setzero_ps();  // NaN where a scale of V is not finite
    for (int i = 0; i < vectors; ++i) {
      if (i % 8 == 0) fetch_next(4);
      const __m512 p = exp2(_mm512_sub_ps(_mm512_load_ps(w.scores + i * 16), base));
      const __m512 scale = Base::per_key(w.v_scales, i * 4);
      sum[i % 2] = _mm512_add_ps(sum[i % 2], p);
      poison = _mm512_fmadd_ps(scale, _mm512_setzero_ps(), poison);
      const __m512 weight = _mm512_mul_ps(p, scale);
      _mm512_store_ps(w.scores + i * 16, weight);
      most[i % 2] = _mm512_max_ps(weight, most[i % 2]);
    }
    Base::store_rows(w.row_sum, _mm512_add_ps(Base::per_row(w.row_sum), Base::across_keys_sum(_mm512_add_ps(sum[0], sum[1]))));
    const __m512 largest = Base::across_keys_max(_mm512_max_ps(most[0], most[1]));
    const __mmask16 weighs = _mm512_cmp_ps_mask(largest, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 to_fixed = _mm512_maskz_div_ps(weighs, _mm512_set1_ps(kFixedOne), largest);
    __m512 zero = _mm512_setzero_ps();
    // Bytes of 16 keys x 4 rows to rows of 16 keys.
    alignas(64) static constexpr struct Order {
      uint8_t of[64];
      constexpr Order() : of() {
        for (int i = 0; i < 64; ++i) {
          const int row = i / 16, key = i % 16, half = key % 8 / 4 + key / 8 * 2, lane = key % 4;
          of[i] = static_cast<uint8_t>(lane * 16 + half * 4 + row);
        }
      }
    } kOrder;
    const __m512i order = _mm512_load_si512(kOrder.of);
    for (int group = 0; group < vectors / 4; group += 4) {  // 64 keys
      __m512i high[4], low[4];
      for (int g = 0; g < 4; ++g) {
        __m512i fixed[4];
        for (int j = 0; j < 4; ++j) {
          const int i = (group + g) * 4 + j;
          fixed[j] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(w.scores + i * 16), to_fixed));
          if constexpr (kFourBits) zero = _mm512_fmadd_ps(_mm512_cvtepi32_ps(fixed[j]), Base::per_key(v_zeros, i * 4), zero);
        }
        const __m512i a = _mm512_packs_epi32(fixed[0], fixed[1]), b = _mm512_packs_epi32(fixed[2], fixed[3]);
        const __m512i byte = _mm512_set1_epi16(255), half = _mm512_set1_epi16(128);
        low[g] = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
        high[g] = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_adds_epi16(a, half), 8),
                                     _mm512_srai_epi16(_mm512_adds_epi16(b, half), 8));
        low[g] = _mm512_permutexvar_epi8(order, low[g]);
        high[g] = _mm512_permutexvar_epi8(order, high[g]);
      }
      for (int part = 0; part < 2; ++part) {
        const __m512i* y = part ? low : high;
        const __m512i a = _mm512_shuffle_i32x4(y[0], y[1], 0x44), b = _mm512_shuffle_i32x4(y[2], y[3], 0x44);
        const __m512i c = _mm512_shuffle_i32x4(y[0], y[1], 0xee), d = _mm512_shuffle_i32x4(y[2], y[3], 0xee);
        char* to = w.weights + part * 4 * kStepKeys + group * 16;
        _mm512_store_si512(to, _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_store_si512(to + kStepKeys, _mm512_shuffle_i32x4(a, b, 0xdd));
        _mm512_store_si512(to + 2 * kStepKeys, _mm512_shuffle_i32x4(c, d, 0x88));
        _mm512_store_si512(to + 3 * kStepKeys, _mm512_shuffle_i32x4(c, d, 0xdd));
      }
    }
    *zeros = Base::across_keys_sum(zero);
    return _mm512_add_ps(_mm512_mul_ps(largest, _mm512_set1_ps(1.f / kFixedOne)), Base::across_keys_sum(poison));
  }

  // O[row] += step[row] * (sums - zeros[row]); columns stay as quad_values left them.
  void add_values(__m512 step, __m512 zeros) {
    alignas(64) int32_t sums_of[8 * 16];
    alignas(64) float steps_of[16], zeros_of[16];
    _mm512_store_ps(steps_of, step);
    _mm512_store_ps(zeros_of, zeros);
    const bool two = count > 64;
    tile_load<kCodeP0>(w.weights, kStepKeys);
    if (two) tile_load<kCodeP1>(w.weights + 64, kStepKeys);
    for (int column = 0; column < kSize; column += 16) {
      const char* v = w.v_pairs + column * 4;
      fetch_next(8);
      tile_zero<kCodeO>();
      tile_load<kCodeV>(v, kSize * 4);
      tile_dot_bytes<kCodeO, kCodeP0, kCodeV>();
      if (two) {
        tile_load<kCodeV>(v + 16 * kSize * 4, kSize * 4);
        tile_dot_bytes<kCodeO, kCodeP1, kCodeV>();
      }
      tile_store<kCodeO>(sums_of, 64);
      for (uint32_t row = 0; row < w.rows; ++row) {
        const __m512 high = _mm512_cvtepi32_ps(_mm512_load_si512(sums_of + row * 16));
        const __m512 low = _mm512_cvtepi32_ps(_mm512_load_si512(sums_of + (4 + row) * 16));
        __m512 all = _mm512_fmadd_ps(high, _mm512_set1_ps(256.f), low);
        if constexpr (kFourBits) all = _mm512_sub_ps(all, _mm512_set1_ps(zeros_of[row]));
        float* out = w.out + row * w.out_stride + column;
        _mm512_store_ps(out, _mm512_fmadd_ps(all, _mm512_set1_ps(steps_of[row]), _mm512_load_ps(out)));
      }
    }
  }

  // O's columns back in order.
  void settle() {
    for (uint32_t row = 0; row < w.rows; ++row) {
      float* out = w.out + row * w.out_stride;
      float ordered[kSize];
      for (int column = 0; column < kSize; ++column) {
        const int part = column % 64 / 16, lane = column % 16 / 4, i = column % 4;
        const int place = column / 64 * 64 + lane * 16 + part * 4 + i;
        ordered[kFourBits ? place % (kSize / 2) * 2 + place / (kSize / 2) : place] = out[column];
      }
      __builtin_memcpy(out, ordered, sizeof ordered);
      w.row_max[row] *= kLn2;
    }
  }

  int32_t run() {
    const CodeShapes shapes;
    fix_query();
    Base::start();
    tile_load<kCodeQ0>(w.q, 32);
    if (kChunks == 2) tile_load<kCodeQ1>(w.q + 512, 32);
    next_count = Base::keys_at(u.key_begin);
    if (next_count && !Base::find_step(u.key_begin, next_count, steps[1])) return 1;
    fetched = 0;
    fetch_next(2 * kStepKeys);
    for (int64_t key = u.key_begin; key < u.key_end; key += kStepKeys) {
      current ^= 1;
      count = next_count, next_count = Base::keys_at(key + kStepKeys);
      if (!Base::find_step(key + kStepKeys, next_count, steps[current ^ 1])) return 1;
      fetched = 0;
      read_code_scales();
      score();
      __m512 zeros;
      const __m512 step = softmax(&zeros);
      quad_values();
      add_values(step, zeros);
    }
    settle();
    finish(u, w);
    return 0;
  }
};

// Every key of the unit is seen and nothing stands between dot product and softmax.
inline bool is_plain_decode(const Unit& u) {
  return u.tokens == 1 && u.heads <= kFewRows && u.q_size[1] == 0 && !(u.soft_cap > 0) && u.alibi == kAlibiNone &&
         u.out_kind != kF32 && u.visible_begin[0] <= u.key_begin && u.visible_end[0] >= u.key_end;
}

template <class Rows, int kSize>
int32_t attend_codes_of(const Unit* unit) {
  const bool fits = unit->q_size[0] == kSize && unit->head_size_v == kSize;
  if (fits && is_plain_decode(*unit)) return CodeAttention<Rows, kSize>(*unit).run();
  // The query of 4-bit rows is float32.
  if constexpr (CodeAttention<Rows, kSize>::kFourBits) {
    return kKernelsAvx512Bf16.attend[kSize == 64 ? kRowsInt4Of64 : kRowsInt4Of128](unit);
  } else {
    return attend_tiles<Rows>(unit);
  }
}
inline int32_t attend_int8(const Unit* unit) {
  return unit->q_size[0] == 64 ? attend_codes_of<Int8Rows, 64>(unit) : attend_codes_of<Int8Rows, 128>(unit);
}

}  // namespace
}  // namespace anyattn::cpu
