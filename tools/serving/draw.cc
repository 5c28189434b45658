// SPDX-License-Identifier: Apache-2.0
#include "serving/draw.h"

#include "anyattn/conformance/vector_widths.h"

namespace anyattn::tools {

ANYATTN_VECTOR_WIDTHS void draw_uniform(uint64_t key, float amplitude, size_t count, float* out, size_t first) {
  const auto start = static_cast<uint32_t>(key);
  const auto twist = static_cast<uint32_t>(key >> 32);
  const float unit = amplitude * 0x1p-23f;
  for (size_t i = 0; i < count; ++i) {
    uint32_t x = (static_cast<uint32_t>(first + i) * 0x9E3779B9u + start) ^ twist;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    out[i] = static_cast<float>(static_cast<int32_t>(x >> 8) - (1 << 23)) * unit;
  }
}

ANYATTN_VECTOR_WIDTHS void store_bfloat16(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, from + i, sizeof bits);
    to[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

ANYATTN_VECTOR_WIDTHS void round_bfloat16(float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, values + i, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    __builtin_memcpy(values + i, &bits, sizeof bits);
  }
}

}  // namespace anyattn::tools
