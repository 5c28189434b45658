// SPDX-License-Identifier: Apache-2.0
// One vector of floats and what the kernels do with it. Compiled once per instruction set, always inside an unnamed
// namespace: nothing here may become a weak symbol that another file of the plugin could pick up. No std headers.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernel.h"

namespace anyattn::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kColumns = 4;  // vectors a register tile is wide: 4 x 4 sums and 5 operands of 32 registers
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kColumns = 2;  // 4 x 2 sums and 3 operands of 16 registers
#else
constexpr int kLanes = 4;
constexpr int kColumns = 2;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t WordVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));

// Element types as tags.
struct F32 {
  static constexpr int kBytes = 4;
};
struct F16 {
  static constexpr int kBytes = 2;
};
struct BF16 {
  static constexpr int kBytes = 2;
};

// Not Vec{} + value: that adds in earnest (-0), and a broadcast from a register takes a port of the FMA units.
inline Vec splat(float value) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(value);
#elif defined(__AVX2__)
  return _mm256_set1_ps(value);
#elif defined(__SSE2__)
  return _mm_set1_ps(value);
#else
  return Vec{value, value, value, value};
#endif
}
inline IntVec splat_int(int32_t value) { return IntVec{} + value; }

inline IntVec lane_numbers() {
  IntVec lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  return lanes;
}

inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// b where a is NaN.
inline Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#elif defined(__SSE2__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline Vec sqrt(Vec a) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(a);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(a);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(a);
#else
  for (int i = 0; i < kLanes; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}

inline float sum(Vec a) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(a);
#else
  float total = 0;
  for (int i = 0; i < kLanes; i += 4) total += (a[i] + a[i + 2]) + (a[i + 1] + a[i + 3]);
  return total;
#endif
}

inline float largest(Vec a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a);
#else
  float top = a[0];
  for (int i = 1; i < kLanes; ++i) top = a[i] > top ? a[i] : top;
  return top;
#endif
}

// Sums of four vectors side by side.
inline void sum4(const Vec a[4], float to[4]) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  __m256 half[4];
  for (int i = 0; i < 4; ++i) half[i] = _mm256_add_ps(_mm512_castps512_ps256(a[i]), _mm512_extractf32x8_ps(a[i], 1));
#else
  const Vec* half = a;
#endif
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#else
  for (int i = 0; i < 4; ++i) to[i] = sum(a[i]);
#endif
}

inline Vec widen(HalfVec bits, BF16) {
  const WordVec words = __builtin_convertvector(bits, WordVec) << 16;
  return (Vec)words;
}

inline Vec widen(HalfVec bits, F16) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps((__m256i)bits);
#elif defined(__F16C__)
  return _mm256_cvtph_ps((__m128i)bits);
#else
  // The exponent moves by a multiplication: exact, and subnormals come along.
  const WordVec words = __builtin_convertvector(bits, WordVec);
  const WordVec magnitude = words & 0x7fffu;
  const Vec moved = (Vec)(magnitude << 13) * 0x1p112f;
  const WordVec special = 0x7f800000u | (magnitude << 13);
  return (Vec)(((words & 0x8000u) << 16) | (magnitude >= 0x7c00u ? special : (WordVec)moved));
#endif
}

inline HalfVec narrow(Vec value, BF16) {
  const WordVec bits = (WordVec)value;
  const WordVec rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const WordVec quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, HalfVec);
}

inline HalfVec narrow(Vec value, F16) {
#if defined(__AVX512F__)
  return (HalfVec)_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__)
  return (HalfVec)_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const WordVec bits = (WordVec)value;
  const WordVec sign = (bits >> 16) & 0x8000u;
  const WordVec magnitude = bits & 0x7fffffffu;
  // Below the normal range adding 0.5 rounds where the last bit of a subnormal stands.
  const WordVec subnormal = (WordVec)((Vec)magnitude + 0.5f) - 0x3f000000u;
  const WordVec normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  WordVec half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? WordVec{} + 0x7c00u : half;
  half = magnitude > 0x7f800000u ? WordVec{} + 0x7e00u : half;
  return __builtin_convertvector(sign | half, HalfVec);
#endif
}

// Whole vectors, unaligned.
inline Vec load(const char* from, F32) {
  Vec value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <class Half>
inline Vec load(const char* from, Half kind) {
  HalfVec bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return widen(bits, kind);
}
inline Vec load(const float* from) { return load(reinterpret_cast<const char*>(from), F32{}); }

// The first n lanes, zeros behind; nothing past them is touched.
inline Vec load_n(const char* from, int n, F32) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), from);
#else
  Vec value{};
  __builtin_memcpy(&value, from, static_cast<size_t>(n) * 4);
  return value;
#endif
}
template <class Half>
inline Vec load_n(const char* from, int n, Half kind) {
#if defined(__AVX512F__)
  return widen((HalfVec)_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), from), kind);
#else
  HalfVec bits{};
  __builtin_memcpy(&bits, from, static_cast<size_t>(n) * 2);
  return widen(bits, kind);
#endif
}

#if defined(__AVX512BW__)
// The first n 16-bit words, zeros behind, two a lane.
inline WordVec load_words_n(const char* from, int n) {
  return (WordVec)_mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1u), from);
}
#endif

inline void store(float* to, Vec value) { __builtin_memcpy(to, &value, sizeof value); }
inline void store_n(char* to, Vec value, int n, F32) { __builtin_memcpy(to, &value, static_cast<size_t>(n) * 4); }
template <class Half>
inline void store_n(char* to, Vec value, int n, Half kind) {
  const HalfVec bits = narrow(value, kind);
  __builtin_memcpy(to, &bits, static_cast<size_t>(n) * 2);
}

// e^x for x <= 88: 2^n * (1 + r + r^2 P(r)), |r| <= ln(2)/2, Cephes' P; relative error below 2e-7 (measured 1.2e-7 with FMA).
// Below -87.3 the result is 0 (e^-87.3 is the smallest normal float); e^-inf is 0, that of NaN is NaN.
inline Vec exp(Vec x) {
  const Vec low = splat(-87.3f);
  const Vec clamped = max(low, x);
  const Vec shifted = fma(clamped, splat(1.44269504088896341f), splat(12582912.f));  // rounds to an integer in the low bits
  const Vec n = shifted - 12582912.f;
  Vec r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.f;
  const Vec power = (Vec)((IntVec)splat(1.f) + ((IntVec)shifted << 23));  // of NaN any number: p is NaN then
  return x < low ? Vec{} : p * power;
}

// tanh to 2 ulp: Cephes' odd polynomial below 0.625, 1 - 2 / (e^2|x| + 1) above. No overflow for any x.
inline Vec tanh(Vec x) {
  const Vec sign = (Vec)((WordVec)x & 0x80000000u);
  const Vec magnitude = (Vec)((WordVec)x & 0x7fffffffu);
  const Vec z = x * x;
  Vec p = splat(-5.70498872745e-3f);
  p = fma(p, z, splat(2.06390887954e-2f));
  p = fma(p, z, splat(-5.37397155531e-2f));
  p = fma(p, z, splat(1.33314422036e-1f));
  p = fma(p, z, splat(-3.33332819422e-1f));
  const Vec small = fma(p * z, x, x);
  const Vec bounded = magnitude > 20.f ? splat(20.f) : magnitude;  // tanh(20) is 1 in float
  const Vec big = 1.f - 2.f / (exp(bounded + bounded) + 1.f);
  return magnitude < 0.625f ? small : (Vec)((WordVec)big | (WordVec)sign);
}

// rows[i][j] -> rows[j][i].
inline void transpose(Vec rows[kLanes]) {
#if defined(__AVX512F__)
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  __m512d u[16];
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_unpacklo_pd((__m512d)t[i], (__m512d)t[i + 2]);
    u[i + 1] = _mm512_unpackhi_pd((__m512d)t[i], (__m512d)t[i + 2]);
    u[i + 2] = _mm512_unpacklo_pd((__m512d)t[i + 1], (__m512d)t[i + 3]);
    u[i + 3] = _mm512_unpackhi_pd((__m512d)t[i + 1], (__m512d)t[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512 even_low = _mm512_shuffle_f32x4((__m512)u[j], (__m512)u[4 + j], 0x88);
    const __m512 even_high = _mm512_shuffle_f32x4((__m512)u[8 + j], (__m512)u[12 + j], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4((__m512)u[j], (__m512)u[4 + j], 0xdd);
    const __m512 odd_high = _mm512_shuffle_f32x4((__m512)u[8 + j], (__m512)u[12 + j], 0xdd);
    rows[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    rows[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    rows[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    rows[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
#elif defined(__AVX2__)
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int j = 0; j < 4; ++j) {
    rows[j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x20);
    rows[4 + j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x31);
  }
#else
  Vec turned[kLanes] = {};
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < kLanes; ++j) turned[i][j] = rows[j][i];
  for (int i = 0; i < kLanes; ++i) rows[i] = turned[i];
#endif
}

// Calls f with the tag of `kind`.
template <class F>
inline void with_kind(ElementKind kind, F&& f) {
  if (kind == kF32) f(F32{});
  if (kind == kF16) f(F16{});
  if (kind == kBF16) f(BF16{});
}

}  // namespace
}  // namespace anyattn::cpu
