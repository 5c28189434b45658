// SPDX-License-Identifier: Apache-2.0
// The numbers tests are made of: the data rule D(seed, dims), float16 and bfloat16, unit roundoffs of a dtype.
// Included by whoever makes test data or rounds as a backend does. Knows no tensor, no case and no backend.
#ifndef ANYATTN_CONFORMANCE_NUMBERS_H
#define ANYATTN_CONFORMANCE_NUMBERS_H

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "anyattn/types.h"

namespace anyattn::conformance {

// SplitMix64. next() is the raw draw; value() is uniform in [-1, 1) and exact in float32.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
  }
  float value() { return (static_cast<float>(next() >> 40) - 8388608.0f) / 8388608.0f; }
  // Uniform in [0, bound); bound > 0. The modulo's bias does not matter to tests.
  uint64_t below(uint64_t bound) { return next() % bound; }

 private:
  uint64_t state_;
};

// D(seed, dims...): `count` draws of a fresh generator, row-major.
inline std::vector<float> draw(uint64_t seed, size_t count) {
  SplitMix64 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = generator.value();
  return values;
}

// Round to nearest even; NaN stays NaN, overflow becomes infinity, subnormals are kept.
uint16_t float16_of(float value);
uint16_t bfloat16_of(float value);
float float_of_float16(uint16_t bits);
float float_of_bfloat16(uint16_t bits);

// `value` as a tensor of `dtype` (FLOAT32, FLOAT16 or BFLOAT16) holds it.
float rounded(uint32_t dtype, float value);

// Half the distance from 1 to the next number: 2^-24, 2^-11, 2^-8; float8_e4m3fn: 2^-4.
double unit_roundoff(uint32_t dtype);

// 4 or 2 for the three float types, 0 for any other.
size_t dtype_bytes(uint32_t dtype);

// "float32", "float16", "bfloat16": also the names of the cache formats. Empty for any other.
std::string_view dtype_name(uint32_t dtype);

// One element of a float dtype or of float8_e4m3fn in memory, in the machine's byte order; unaligned is fine.
void store_element(uint32_t dtype, void* at, float value);
float load_element(uint32_t dtype, const void* at);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_NUMBERS_H
