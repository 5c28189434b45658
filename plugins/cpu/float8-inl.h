// SPDX-License-Identifier: Apache-2.0
// Float8 E4M3 and E5M2 of the OCP 8-bit specification 1.0 in the low bytes of a vector of words. Compiled once per instruction
// set behind simd-inl.h. Narrowing rounds to nearest even and saturates at the largest finite number; NaN stays NaN.
#pragma once
#include "simd-inl.h"

namespace anyattn::cpu {
namespace {

struct E4M3 {
  static constexpr int kFraction = 3, kBias = 7;
  static constexpr uint32_t kLargest = 0x7e, kNan = 0x7f;
};
struct E5M2 {
  static constexpr int kFraction = 2, kBias = 15;
  static constexpr uint32_t kLargest = 0x7b, kNan = 0x7f;
};

// n bytes, each in the low byte of a lane, zeros above and behind.
inline WordVec load_bytes(const char* from, int n) {
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
  Bytes bytes{};
  if (n == kLanes) {
    __builtin_memcpy(&bytes, from, kLanes);
  } else {
#if defined(__AVX512F__)
    bytes = (Bytes)_mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), from);
#else
    __builtin_memcpy(&bytes, from, static_cast<size_t>(n));
#endif
  }
  return __builtin_convertvector(bytes, WordVec);
}

// The low bytes of the first n lanes.
inline void store_bytes(char* to, WordVec words, int n) {
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
  const Bytes bytes = __builtin_convertvector(words & 0xffu, Bytes);
  __builtin_memcpy(to, &bytes, static_cast<size_t>(n));
}

template <class Float8>
inline WordVec narrow8(Vec value, Float8) {
  constexpr int kDrop = 23 - Float8::kFraction;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - Float8::kBias) << 23;
  // In [2^k, 2^(k+1)) with this k a float's last bit is the smallest step of the type: the adder rounds.
  constexpr uint32_t kAligned = static_cast<uint32_t>(128 - Float8::kBias - Float8::kFraction + 23) << 23;
  const WordVec bits = (WordVec)value;
  const WordVec magnitude = bits & 0x7fffffffu;
  const WordVec normal = ((magnitude + ((1u << (kDrop - 1)) - 1u) + ((magnitude >> kDrop) & 1u)) >> kDrop) -
                         (static_cast<uint32_t>(127 - Float8::kBias) << Float8::kFraction);
  const Vec shifted = (Vec)magnitude + (Vec)(WordVec{} + kAligned);
  const WordVec subnormal = (WordVec)shifted - kAligned;
  WordVec code = magnitude < kSmallestNormal ? subnormal : normal;
  code = code > Float8::kLargest ? WordVec{} + Float8::kLargest : code;
  code = magnitude > 0x7f800000u ? WordVec{} + Float8::kNan : code;
  return code | ((bits >> 24) & 0x80u);
}

// No step meets a subnormal float: they are slow on some processors.
inline Vec widen8(WordVec bytes, E4M3) {
  const WordVec sign = (bytes & 0x80u) << 24, magnitude = bytes & 0x7fu;
  const WordVec normal = (magnitude << 20) + (120u << 23);
  const WordVec subnormal = (WordVec)(__builtin_convertvector((IntVec)magnitude, Vec) * 0x1p-9f);
  WordVec value = magnitude < 8u ? subnormal : normal;
  value = magnitude == 0x7fu ? WordVec{} + 0x7fc00000u : value;
  return (Vec)(value | sign);
}

// The upper half of a float16.
inline Vec widen8(WordVec bytes, E5M2) { return widen(__builtin_convertvector(bytes << 8, HalfVec), F16{}); }

}  // namespace
}  // namespace anyattn::cpu
