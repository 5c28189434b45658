// SPDX-License-Identifier: Apache-2.0
// Loads of quantised rows in registers: structs for the kernels as keys-inl.h describes them. All values are exact in
// bfloat16. Included by the kernels of AVX-512 with bfloat16.
#pragma once
#include "float8-inl.h"
#include "keys-inl.h"

namespace anyattn::cpu {
namespace {

inline __m256i load_32(const char* from, int n) {
  if (n == 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm256_maskz_loadu_epi8((1u << n) - 1u, from);
}
inline __m128i load_16(const char* from, int n) {
  if (n == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), from);
}

// 32 codes, each in the low byte of a word, as bfloat16. Exponents move by addition; the few subnormals come from a table.
template <class Float8>
inline __m512i bf16_of_float8(__m512i words) {
  constexpr int kFraction = Float8::kFraction, kSteps = 1 << kFraction;
  constexpr bool kHasInfinity = kFraction == 2;
  const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7f));
  __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 7 - kFraction), _mm512_set1_epi16((127 - Float8::kBias) << 7));
  // 0 to 7 times the smallest step: bfloat16 of the integers with the exponent of the step added.
  constexpr int kStep = (1 - Float8::kBias - kFraction) * 128;
  const __m512i steps = _mm512_castsi128_si512(_mm_set_epi16(0x40e0 + kStep, 0x40c0 + kStep, 0x40a0 + kStep, 0x4080 + kStep,
                                                             0x4040 + kStep, 0x4000 + kStep, 0x3f80 + kStep, 0));
  const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(kSteps));
  value = _mm512_mask_permutexvar_epi16(value, small, magnitude, steps);
  const __mmask32 special = _mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(kHasInfinity ? 0x7c : 0x7f));
  value = _mm512_mask_blend_epi16(special, value, _mm512_or_si512(value, _mm512_set1_epi16(0x7f80)));
  return _mm512_ternarylogic_epi64(value, _mm512_slli_epi16(words, 8), _mm512_set1_epi16(static_cast<int16_t>(0x8000)), 0xf8);
}

#if defined(__AVX512VBMI__)
// bfloat16 of all codes without their sign, a plane for each of its bytes: a table of 128 bytes is one instruction.
template <class Float8>
struct Float8Planes {
  alignas(64) uint8_t low[128], high[128];
  constexpr Float8Planes() : low(), high() {
    constexpr int kFraction = Float8::kFraction;
    for (int code = 0; code < 128; ++code) {
      int exponent = code >> kFraction, fraction = code & ((1 << kFraction) - 1);
      uint32_t bits = 0;
      if (kFraction == 2 ? exponent == 31 : code == 127) {
        bits = 0x7f80u | static_cast<uint32_t>(fraction << (7 - kFraction));
      } else if (exponent > 0 || fraction > 0) {
        if (exponent == 0) {
          for (exponent = 1; fraction < 1 << kFraction; --exponent) fraction *= 2;
          fraction -= 1 << kFraction;
        }
        bits = static_cast<uint32_t>((exponent + 127 - Float8::kBias) << 7 | fraction << (7 - kFraction));
      }
      low[code] = static_cast<uint8_t>(bits);
      high[code] = static_cast<uint8_t>(bits >> 8);
    }
  }
};
template <class Float8>
inline constexpr Float8Planes<Float8> kFloat8Planes;
#endif

struct CodeRows {
  static constexpr bool kPairs = true;
  static constexpr bool kInPlace = false;
  static constexpr int kBytes = 1;
  static constexpr bool kMixed = false;
};

// One scale for all rows of a head; kBeside: a float32 scale behind each row.
template <class Float8, bool kBeside>
struct Float8Rows : CodeRows {
  static constexpr bool kScaled = kBeside;
  static int64_t bytes(uint32_t size) { return size + (kBeside ? 4 : 0); }
  static Vec load(const char* row, uint32_t at) { return load_n(row, at, kLanes); }
  static Vec load_n(const char* row, uint32_t at, int n) { return widen8(load_bytes(row + at, n), Float8{}); }
#if defined(__AVX512VBMI__)
  static constexpr bool kMixed = true;
  static void copy_mixed(const char* const* rows, int count, uint32_t size, char* to, size_t stride) {
    const auto& planes = kFloat8Planes<Float8>;
    const __m512i low0 = _mm512_load_si512(planes.low), low1 = _mm512_load_si512(planes.low + 64);
    const __m512i high0 = _mm512_load_si512(planes.high), high1 = _mm512_load_si512(planes.high + 64);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int i = 0; i < count; ++i, to += stride)
      for (uint32_t at = 0; at < size; at += 64) {
        const __m512i codes = _mm512_loadu_si512(rows[i] + at);
        const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
        const __m512i high = _mm512_ternarylogic_epi64(_mm512_permutex2var_epi8(high0, codes, high1), codes, sign, 0xf8);
        _mm512_store_si512(to + size_t{at} * 2, _mm512_unpacklo_epi8(low, high));
        _mm512_store_si512(to + size_t{at} * 2 + 64, _mm512_unpackhi_epi8(low, high));
      }
  }
#endif
  static WordVec load_pairs(const char* row, uint32_t at) { return load_pairs_n(row, at, 32); }
  static WordVec load_pairs_n(const char* row, uint32_t at, int n) {
    return (WordVec)bf16_of_float8<Float8>(_mm512_cvtepu8_epi16(load_32(row + at, n)));
  }
  static float scale(const char* row, uint32_t size) {
    float value;
    __builtin_memcpy(&value, row + size, 4);
    return value;
  }
};
using E4M3Rows = Float8Rows<E4M3, false>;
using E5M2Rows = Float8Rows<E5M2, false>;
using E4M3ScaledRows = Float8Rows<E4M3, true>;

struct Int8Rows : CodeRows {
  static constexpr bool kScaled = true;
  static int64_t bytes(uint32_t size) { return size + 4; }
  static Vec load(const char* row, uint32_t at) { return load_n(row, at, kLanes); }
  static Vec load_n(const char* row, uint32_t at, int n) {
    return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(row + at, n)));
  }
  static WordVec load_pairs(const char* row, uint32_t at) {
    return (WordVec)(__m512i)_mm512_cvtne2ps_pbh((__m512)load(row, at + 16), (__m512)load(row, at));
  }
  static WordVec load_pairs_n(const char* row, uint32_t at, int n) {
    const Vec high = n > 16 ? load_n(row, at + 16, n - 16) : Vec{};
    return (WordVec)(__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)load_n(row, at, n < 16 ? n : 16));
  }
  static float scale(const char* row, uint32_t size) {
    float value;
    __builtin_memcpy(&value, row + size, 4);
    return value;
  }
};

// Codes of `kSize` values in rotated form; the zero point comes off by the choice of the table's start.
template <int kSize>
struct Int4Rows : CodeRows {
  static constexpr bool kScaled = true;
  static int64_t bytes(uint32_t) { return kSize / 2 + 4; }
  static uint32_t word(const char* row) {
    uint32_t value;
    __builtin_memcpy(&value, row + kSize / 2, 4);
    return value;
  }
  static Vec load(const char* row, uint32_t at) {
    uint64_t codes;
    __builtin_memcpy(&codes, row + at / 2, 8);
    const __m512i halves = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i shifts = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512i spread =
        _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(_mm_cvtsi64_si128(static_cast<long long>(codes))));
    const __m512i code = _mm512_and_si512(_mm512_srlv_epi32(spread, shifts), _mm512_set1_epi32(15));
    return (Vec)_mm512_cvtepi32_ps(_mm512_sub_epi32(code, _mm512_set1_epi32(static_cast<int>(word(row) & 15u))));
  }
  static Vec load_n(const char* row, uint32_t at, int) { return load(row, at); }  // sizes are whole vectors
  static WordVec load_pairs(const char* row, uint32_t at) {
    // bfloat16 of -15 to 15: 16 neighbours, the first one minus the zero point, stand for the codes 0 to 15.
    alignas(64) static constexpr uint16_t kIntegers[32] = {0xc170, 0xc160, 0xc150, 0xc140, 0xc130, 0xc120, 0xc110, 0xc100,
                                                           0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0,
                                                           0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100,
                                                           0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0};
    const char* first = reinterpret_cast<const char*>(kIntegers + 15 - (word(row) & 15u));
    const __m512i table = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first)));
    // Each byte in a cell: its low nibble indexes the lower word, moved up by 12 its high nibble the upper one.
    const __m512i bytes = _mm512_cvtepu8_epi32(load_16(row + at / 2, 16));
    const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
    return (WordVec)_mm512_permutexvar_epi16(index, table);
  }
  static WordVec load_pairs_n(const char* row, uint32_t at, int) { return load_pairs(row, at); }
  static float scale(const char* row, uint32_t) {
    const uint32_t bits = word(row) & ~15u;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
  }
};

}  // namespace
}  // namespace anyattn::cpu
