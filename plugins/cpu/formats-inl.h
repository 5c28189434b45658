// SPDX-License-Identifier: Apache-2.0
// Quantised cache rows as ABI.md states them: written from an engine's elements, read as float32. Compiled once per
// instruction set behind simd-inl.h; every set gives the same bytes: no step here rounds in an order of its own.
#pragma once
#include "float8-inl.h"
#include "rotate-inl.h"

namespace anyattn::cpu {
namespace {

constexpr int kRecordLatent = 512, kRecordRope = 64, kRecordTile = 128;  // MLA records
constexpr int kRecordScales = kRecordLatent, kRecordRopeAt = kRecordLatent + 4 * kRecordLatent / kRecordTile;

inline float float_of_word(uint32_t word) {
  float value;
  __builtin_memcpy(&value, &word, 4);
  return value;
}
inline uint32_t word_of_float(float value) {
  uint32_t word;
  __builtin_memcpy(&word, &value, 4);
  return word;
}
inline float load_float(const char* from) {
  float value;
  __builtin_memcpy(&value, from, 4);
  return value;
}

// f(i, n, value) for each vector of `count` elements; n lanes of it are there, the rest 0.
template <class F>
inline void each_vector(const char* from, ElementKind kind, uint32_t count, F&& f) {
  with_kind(kind, [&](auto element) {
    constexpr size_t kBytes = decltype(element)::kBytes;
    for (uint32_t i = 0; i < count; i += kLanes) {
      const int n = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
      f(i, n, n == kLanes ? load(from + i * kBytes, element) : load_n(from + i * kBytes, n, element));
    }
  });
}

inline Vec magnitude_of(Vec a) { return (Vec)((WordVec)a & 0x7fffffffu); }
// trunc(a +- 0.5), away from zero at halves; |a| below 2^31.
inline IntVec whole(Vec a) {
  const Vec half = (Vec)(((WordVec)a & 0x80000000u) | 0x3f000000u);
  return __builtin_convertvector(a + half, IntVec);
}
inline IntVec within(IntVec a, int32_t least, int32_t most) {
  a = a < least ? splat_int(least) : a;
  return a > most ? splat_int(most) : a;
}

// Largest magnitude, infinity where an element is not finite.
inline float largest_magnitude(const char* from, ElementKind kind, uint32_t count) {
  const Vec infinity = splat(__builtin_inff());
  Vec most{};
  each_vector(from, kind, count, [&](uint32_t, int, Vec value) {
    const Vec magnitude = magnitude_of(value);
    most = max(magnitude == magnitude ? magnitude : infinity, most);  // NOLINT(misc-redundant-expression): not so for NaN
  });
  return largest(most);
}

inline void store_scale(char* at, uint32_t word) { __builtin_memcpy(at, &word, 4); }
constexpr uint32_t kNanScale = 0x7fc00000u;  // of rows that hold a NaN or an infinity: they read as NaN

// ---- writing ---------------------------------------------------------------------------------------------------------

template <class Float8>
void store_float8(char* row, const char* from, ElementKind kind, uint32_t size, float scale) {
  each_vector(from, kind, size,
              [&](uint32_t i, int n, Vec value) { store_bytes(row + i, narrow8(value / scale, Float8{}), n); });
}

void store_int8_scaled(char* row, const char* from, ElementKind kind, uint32_t size, float) {
  const float most = largest_magnitude(from, kind, size);
  if (!(most < __builtin_inff())) {
    __builtin_memset(row, 0, size);
    return store_scale(row + size, kNanScale);
  }
  const float scale = most / 127.f > 1e-6f ? most / 127.f : 1e-6f;
  each_vector(from, kind, size,
              [&](uint32_t i, int n, Vec value) { store_bytes(row + i, (WordVec)within(whole(value / scale), -128, 127), n); });
  store_scale(row + size, word_of_float(scale));
}

void store_e4m3_scaled(char* row, const char* from, ElementKind kind, uint32_t size, float) {
  const float most = largest_magnitude(from, kind, size);
  if (!(most < __builtin_inff())) {
    __builtin_memset(row, 0, size);
    return store_scale(row + size, kNanScale);
  }
  const float scale = most / 448.f > 1e-6f ? most / 448.f : 1e-6f;
  store_float8<E4M3>(row, from, kind, size, scale);
  store_scale(row + size, word_of_float(scale));
}

// size is a power of two, kMaxRotated at most.
void store_int4_scaled(char* row, const char* from, ElementKind kind, uint32_t size, float) {
  float y[kMaxRotated];
  each_vector(from, kind, size,
              [&](uint32_t i, int n, Vec value) { store_n(reinterpret_cast<char*>(y + i), value, n, F32{}); });
  rotate(y, size);
  float low = y[0], high = y[0], finite = 0.f;
  for (uint32_t i = 0; i < size; ++i) {
    low = y[i] < low ? y[i] : low;
    high = y[i] > high ? y[i] : high;
    finite += y[i] - y[i];  // NaN with any that is not finite
  }
  if (finite != finite) {
    __builtin_memset(row, 0, size / 2);
    return store_scale(row + size / 2, kNanScale);
  }
  const float range = (high - low) / 15.f, scale = range > 1e-6f ? range : 1e-6f;
  const auto code_of = [](float value) {
    const float code = __builtin_truncf(value + __builtin_copysignf(0.5f, value));
    return code < 0.f ? 0u : code > 15.f ? 15u : static_cast<uint32_t>(code);
  };
  const uint32_t zero = code_of(-low / scale);
  const float offset = static_cast<float>(zero);
  for (uint32_t i = 0; i < size; i += 2)
    row[i / 2] = static_cast<char>(code_of(y[i] / scale + offset) | code_of(y[i + 1] / scale + offset) << 4);
  store_scale(row + size / 2, (word_of_float(scale) & ~15u) | zero);
}

template <ElementKind kTo>
void store_plain(char* row, const char* from, ElementKind kind, uint32_t size, float scale) {
  with_kind(kTo, [&](auto target) {
    constexpr size_t kBytes = decltype(target)::kBytes;
    each_vector(from, kind, size, [&](uint32_t i, int n, Vec value) { store_n(row + i * kBytes, value / scale, n, target); });
  });
}

void store_record(char* row, const char* latent, const char* rope, ElementKind kind) {
  const size_t element = kind == kF32 ? 4 : 2;
  for (int tile = 0; tile < kRecordLatent / kRecordTile; ++tile) {
    const char* from = latent + static_cast<size_t>(tile * kRecordTile) * element;
    char* to = row + tile * kRecordTile;
    const float most = largest_magnitude(from, kind, kRecordTile);
    const bool finite = most < __builtin_inff();
    const float scale = most / 448.f > 0x1p-126f ? most / 448.f : 0x1p-126f;
    if (finite) store_float8<E4M3>(to, from, kind, kRecordTile, scale);
    if (!finite) __builtin_memset(to, 0, kRecordTile);
    store_scale(row + kRecordScales + 4 * tile, finite ? word_of_float(scale) : kNanScale);
  }
  store_plain<kBF16>(row + kRecordRopeAt, rope, kind, kRecordRope, 1.f);
}

// ---- reading ---------------------------------------------------------------------------------------------------------

// to[i .. i + n) = the first n lanes of f(i, n).
template <class F>
inline void fill_row(float* to, uint32_t size, F&& f) {
  for (uint32_t i = 0; i < size; i += kLanes) {
    const int n = size - i < kLanes ? static_cast<int>(size - i) : kLanes;
    if (n == kLanes) store(to + i, f(i, n));
    if (n < kLanes) store_n(reinterpret_cast<char*>(to + i), f(i, n), n, F32{});
  }
}

template <class Float8>
void load_float8(const char* row, uint32_t size, float* to) {
  fill_row(to, size, [&](uint32_t i, int n) { return widen8(load_bytes(row + i, n), Float8{}); });
}

void load_e4m3_scaled(const char* row, uint32_t size, float* to) {
  const float scale = load_float(row + size);
  fill_row(to, size, [&](uint32_t i, int n) { return widen8(load_bytes(row + i, n), E4M3{}) * scale; });
}

inline Vec float_of_int8(WordVec bytes) { return __builtin_convertvector((IntVec)(bytes << 24) >> 24, Vec); }

void load_int8_scaled(const char* row, uint32_t size, float* to) {
  const float scale = load_float(row + size);
  fill_row(to, size, [&](uint32_t i, int n) { return float_of_int8(load_bytes(row + i, n)) * scale; });
}

void load_int4_scaled(const char* row, uint32_t size, float* to) {
  const uint32_t word = word_of_float(load_float(row + size / 2));
  const float step = float_of_word(word & ~15u);
  const auto zero = static_cast<int32_t>(word & 15u);
  for (uint32_t i = 0; i < size; i += 2) {
    const int32_t codes = static_cast<uint8_t>(row[i / 2]);
    to[i] = static_cast<float>((codes & 15) - zero) * step;
    to[i + 1] = static_cast<float>((codes >> 4) - zero) * step;
  }
  rotate_back(to, size);
}

// The first `size` values of a record: the latent part alone, or all.
void load_record(const char* row, uint32_t size, float* to) {
  for (uint32_t tile = 0; tile * kRecordTile < size && tile < kRecordLatent / kRecordTile; ++tile) {
    const float scale = load_float(row + kRecordScales + 4 * tile);
    const char* from = row + static_cast<size_t>(tile) * kRecordTile;
    fill_row(to + tile * kRecordTile, kRecordTile,
             [&](uint32_t i, int n) { return widen8(load_bytes(from + i, n), E4M3{}) * scale; });
  }
  if (size > kRecordLatent)
    fill_row(to + kRecordLatent, size - kRecordLatent,
             [&](uint32_t i, int n) { return load_n(row + kRecordRopeAt + static_cast<size_t>(i) * 2, n, BF16{}); });
}

template <ElementKind kFrom>
void load_plain(const char* row, uint32_t size, float* to) {
  with_kind(kFrom, [&](auto source) {
    constexpr size_t kBytes = decltype(source)::kBytes;
    fill_row(to, size, [&](uint32_t i, int n) { return load_n(row + i * kBytes, n, source); });
  });
}

// A query row in the keys' rotation. Rounded to bfloat16 it would err more than the reference allows the log-sum-exp.
void rotate_row(float* to, const char* from, ElementKind kind, uint32_t size) {
  each_vector(from, kind, size,
              [&](uint32_t i, int n, Vec value) { store_n(reinterpret_cast<char*>(to + i), value, n, F32{}); });
  rotate(to, size);
}

// In the order of RowFormat.
#define ANYATTN_STORE_ROWS                                        \
  {&store_plain<kF32>,  &store_plain<kF16>,  &store_plain<kBF16>, \
   &store_float8<E4M3>, &store_float8<E5M2>, &store_int8_scaled,  \
   &store_e4m3_scaled,  &store_int4_scaled,  nullptr,             \
   &store_int4_scaled,  &store_int4_scaled}
#define ANYATTN_LOAD_ROWS                                                                                               \
  {&load_plain<kF32>, &load_plain<kF16>, &load_plain<kBF16>, &load_float8<E4M3>, &load_float8<E5M2>, &load_int8_scaled, \
   &load_e4m3_scaled, &load_int4_scaled, &load_record,       &load_int4_scaled,  &load_int4_scaled}

}  // namespace
}  // namespace anyattn::cpu
