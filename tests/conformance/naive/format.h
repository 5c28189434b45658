// SPDX-License-Identifier: Apache-2.0
// Elements of the caches NAIVE_ATTN takes: floats, float8 by way of a table of all codes, int8 with a scale beside each row.
// Included by the plain backend. Knows no plane.
#pragma once

#include <array>
#include <string_view>

#include "row.h"

namespace naive {

struct CacheFormat {
  uint32_t dtype = ANYATTN_DTYPE_NONE;  // none: not taken
  bool row_scale = false;               // one float32 behind each row
};

inline CacheFormat format_of(const char* kv_cache_dtype) {
  const std::string_view name = kv_cache_dtype ? kv_cache_dtype : "";
  if (name == "fp8" || name == "fp8_e4m3") return {ANYATTN_DTYPE_FLOAT8_E4M3FN};
  if (name == "fp8_e5m2") return {ANYATTN_DTYPE_FLOAT8_E5M2};
  if (name == "int8_per_token_head") return {ANYATTN_DTYPE_INT8, true};
  return {anyattn::dtype_of_float_name(name)};
}

inline constexpr const char* kFormats = "float32, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2, int8_per_token_head";

// Values of all codes below the sign bit. E5M2 is the upper half of float16, E4M3 has a bias of 7 and no infinity.
inline const std::array<float, 128>& float8_values(uint32_t dtype) {
  const auto fill = [](bool e5m2) {
    std::array<float, 128> values{};
    for (uint16_t code = 0; code < 128; ++code) {
      if (e5m2) {
        values[code] = anyattn::to_float(anyattn::Float16{static_cast<uint16_t>(code << 8)});
      } else if (code == 127) {
        values[code] = std::numeric_limits<float>::quiet_NaN();
      } else {
        const int exponent = code >> 3, fraction = code & 7;
        values[code] = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                     : std::ldexp(1.0f + static_cast<float>(fraction) / 8.0f, exponent - 7);
      }
    }
    return values;
  };
  static const std::array<float, 128> e4m3 = fill(false), e5m2 = fill(true);
  return dtype == ANYATTN_DTYPE_FLOAT8_E5M2 ? e5m2 : e4m3;
}

// The nearest code, the even one of two; past the largest number that one.
inline uint8_t float8_code(uint32_t dtype, float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const std::array<float, 128>& values = float8_values(dtype);
  const uint8_t most = dtype == ANYATTN_DTYPE_FLOAT8_E5M2 ? 0x7b : 0x7e;
  const float magnitude = std::fabs(value);
  uint8_t best = 0;
  for (uint8_t code = 1; code <= most; ++code) {
    const double now = std::fabs(static_cast<double>(values[code]) - static_cast<double>(magnitude));
    const double before = std::fabs(static_cast<double>(values[best]) - static_cast<double>(magnitude));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return sign | (magnitude > values[most] ? most : best);
}

inline float load_stored(uint32_t dtype, const std::byte* at) {
  if (anyattn::dtype_bytes(dtype) > 1) return load(dtype, at);
  if (dtype == ANYATTN_DTYPE_INT8) return static_cast<float>(static_cast<int8_t>(*at));
  const auto code = static_cast<uint8_t>(*at);
  const float magnitude = float8_values(dtype)[code & 0x7f];
  return code & 0x80 ? -magnitude : magnitude;
}

inline void store_value(uint32_t dtype, std::byte* at, float value) {
  if (anyattn::dtype_bytes(dtype) > 1) return store(dtype, at, value);
  if (dtype == ANYATTN_DTYPE_INT8) {
    *at = static_cast<std::byte>(static_cast<int8_t>(std::clamp(std::round(value), -128.0f, 127.0f)));
  } else {
    *at = std::byte{float8_code(dtype, value)};
  }
}

}  // namespace naive
