// SPDX-License-Identifier: Apache-2.0
// The rotation of 4-bit rows: H diag(signs), H the Hadamard matrix of the row's size, not normalised. Compiled once per
// instruction set behind simd-inl.h. Sums are taken at distances 1, 2, 4, ... as ABI.md says, so every set rounds alike.
#pragma once
#include "simd-inl.h"

namespace anyattn::cpu {
namespace {

constexpr uint32_t kMaxRotated = 512;

// A set bit is a minus: bit 23 of the draws of MT19937 seeded with 0x9E3779B9.
constexpr uint32_t kMinus[kMaxRotated / 32] = {0x9a8ca6f2u, 0x7f7fca4eu, 0x59bbc293u, 0x9480abc7u, 0xb55b747eu, 0x54503bbeu,
                                               0xcdf467b7u, 0x05dfbc5fu, 0xb291e3ccu, 0x57563834u, 0xe46ae225u, 0x67fc4ca6u,
                                               0xcfc78691u, 0x32d9dff1u, 0x365fdb89u, 0x75625346u};

// Signs of elements [at, at + kLanes) as sign bits; at is a multiple of kLanes.
inline WordVec sign_bits(uint32_t at) {
  const uint32_t bits = kMinus[at / 32] >> (at % 32);
  return ((WordVec{} + bits) >> (WordVec)lane_numbers()) << 31;
}

inline void hadamard(float* row, uint32_t size) {
  for (uint32_t distance = 1; distance < kLanes && distance < size; distance *= 2) {
    for (uint32_t base = 0; base < size; base += 2 * distance) {
      for (uint32_t i = base; i < base + distance; ++i) {
        const float a = row[i], b = row[i + distance];
        row[i] = a + b;
        row[i + distance] = a - b;
      }
    }
  }
  for (uint32_t distance = kLanes; distance < size; distance *= 2) {
    for (uint32_t base = 0; base < size; base += 2 * distance) {
      for (uint32_t i = base; i < base + distance; i += kLanes) {
        const Vec a = load(row + i), b = load(row + i + distance);
        store(row + i, a + b);
        store(row + i + distance, a - b);
      }
    }
  }
}

// In place; rows of `size` floats, a power of two, 16 at least.
inline void rotate(float* row, uint32_t size) {
  for (uint32_t i = 0; i < size; i += kLanes) store(row + i, (Vec)((WordVec)load(row + i) ^ sign_bits(i)));
  hadamard(row, size);
}

inline void rotate_back(float* row, uint32_t size) {
  hadamard(row, size);
  const float factor = 1.f / static_cast<float>(size);
  for (uint32_t i = 0; i < size; i += kLanes) store(row + i, (Vec)((WordVec)(load(row + i) * factor) ^ sign_bits(i)));
}

}  // namespace
}  // namespace anyattn::cpu
