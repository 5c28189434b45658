// SPDX-License-Identifier: Apache-2.0
// Element types: size and name of a dtype, 16-bit floats as storage types, exact conversion to and from float.
// Included by tensor views, plugins and tests. No arithmetic on 16-bit floats.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "anyattn/types.h"

namespace anyattn {

// IEEE binary16 and bfloat16 as bits. Conversion to them rounds to nearest, ties to even.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
inline float to_float(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // The exponent is moved by a multiplication, which is exact and takes subnormals along.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
}

template <class T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline BFloat16 from_float<BFloat16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
inline Float16 from_float<Float16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Below the normal range: adding 0.5 puts the rounding where the last bit of a subnormal stands.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr uint32_t value = ANYATTN_DTYPE_FLOAT32;
};
template <>
struct DtypeOf<Float16> {
  static constexpr uint32_t value = ANYATTN_DTYPE_FLOAT16;
};
template <>
struct DtypeOf<BFloat16> {
  static constexpr uint32_t value = ANYATTN_DTYPE_BFLOAT16;
};
template <>
struct DtypeOf<int32_t> {
  static constexpr uint32_t value = ANYATTN_DTYPE_INT32;
};
template <>
struct DtypeOf<int64_t> {
  static constexpr uint32_t value = ANYATTN_DTYPE_INT64;
};
template <>
struct DtypeOf<uint8_t> {
  static constexpr uint32_t value = ANYATTN_DTYPE_UINT8;
};

// Bytes of one element; 0 for dtypes narrower than a byte.
constexpr uint32_t dtype_bytes(uint32_t dtype) { return ((dtype >> 8) & 0xffu) / 8u; }

// "float32", "bfloat16", ...; an unknown word as code, bits and lanes.
inline std::string dtype_name(uint32_t dtype) {
  switch (dtype) {
    case ANYATTN_DTYPE_NONE:
      return "none";
    case ANYATTN_DTYPE_INT8:
      return "int8";
    case ANYATTN_DTYPE_INT32:
      return "int32";
    case ANYATTN_DTYPE_INT64:
      return "int64";
    case ANYATTN_DTYPE_UINT8:
      return "uint8";
    case ANYATTN_DTYPE_FLOAT16:
      return "float16";
    case ANYATTN_DTYPE_FLOAT32:
      return "float32";
    case ANYATTN_DTYPE_BFLOAT16:
      return "bfloat16";
    case ANYATTN_DTYPE_FLOAT8_E4M3FN:
      return "float8_e4m3fn";
    case ANYATTN_DTYPE_FLOAT8_E5M2:
      return "float8_e5m2";
    default:
      return "dtype(code " + std::to_string(dtype & 0xffu) + ", bits " + std::to_string((dtype >> 8) & 0xffu) + ", lanes " +
             std::to_string(dtype >> 16) + ")";
  }
}

// The dtype of a plain float cache format by its name; ANYATTN_DTYPE_NONE for every other name.
inline uint32_t dtype_of_float_name(std::string_view name) {
  if (name == "float32") return ANYATTN_DTYPE_FLOAT32;
  if (name == "float16") return ANYATTN_DTYPE_FLOAT16;
  if (name == "bfloat16") return ANYATTN_DTYPE_BFLOAT16;
  return ANYATTN_DTYPE_NONE;
}

}  // namespace anyattn
