// SPDX-License-Identifier: Apache-2.0
// Values that are functions of a key, not of a state: any token of any layer can be drawn again, in any order.
// Included by whatever makes up tokens, queries, keys and values for `run`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace anyattn::tools {

// SplitMix64's finaliser over the words in order.
inline uint64_t mix(std::initializer_list<uint64_t> words) {
  uint64_t z = 0;
  for (const uint64_t word : words) {
    z += word + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
  }
  return z;
}

// [0, 1), 53 bits.
inline double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// out[i] = amplitude * u, u uniform in [-1, 1) with 24 bits, a function of (key, i): a 32-bit finaliser (Wellons' lowbias32) of
// a Weyl sequence, which compilers turn into vector code. i counts from `first`.
void draw_uniform(uint64_t key, float amplitude, size_t count, float* out, size_t first = 0);

// Finite values to the nearest bfloat16, ties to even.
void store_bfloat16(const float* from, size_t count, uint16_t* to);
// The same, in place.
void round_bfloat16(float* values, size_t count);

}  // namespace anyattn::tools
