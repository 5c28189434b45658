// SPDX-License-Identifier: Apache-2.0
#include "anyattn/conformance/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "anyattn/conformance/cache_format.h"

namespace anyattn::conformance {

uint16_t bfloat16_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float float_of_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float16_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);  // halfway to 65536 rounds to infinity
  if (magnitude < 0x1p-14f) {
    // In [0.5, 1) a float's last bit is float16's smallest step, 2^-24: the adder rounds for us.
    const float aligned = magnitude + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rest = std::bit_cast<uint32_t>(magnitude) - (112u << 23);  // exponent bias 127 -> 15
  return static_cast<uint16_t>(sign | ((rest + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}

float float_of_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

float rounded(uint32_t dtype, float value) {
  switch (dtype) {
    case ANYATTN_DTYPE_FLOAT16:
      return float_of_float16(float16_of(value));
    case ANYATTN_DTYPE_BFLOAT16:
      return float_of_bfloat16(bfloat16_of(value));
    default:
      return value;
  }
}

double unit_roundoff(uint32_t dtype) {
  switch (dtype) {
    case ANYATTN_DTYPE_FLOAT16:
      return 0x1p-11;
    case ANYATTN_DTYPE_BFLOAT16:
      return 0x1p-8;
    case ANYATTN_DTYPE_FLOAT8_E4M3FN:
      return 0x1p-4;
    default:
      return 0x1p-24;
  }
}

size_t dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case ANYATTN_DTYPE_FLOAT32:
      return 4;
    case ANYATTN_DTYPE_FLOAT16:
    case ANYATTN_DTYPE_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

std::string_view dtype_name(uint32_t dtype) {
  switch (dtype) {
    case ANYATTN_DTYPE_FLOAT32:
      return "float32";
    case ANYATTN_DTYPE_FLOAT16:
      return "float16";
    case ANYATTN_DTYPE_BFLOAT16:
      return "bfloat16";
    default:
      return {};
  }
}

void store_element(uint32_t dtype, void* at, float value) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  if (dtype == ANYATTN_DTYPE_FLOAT8_E4M3FN) {
    const uint8_t code = float8_of(dtype, value);
    std::memcpy(at, &code, sizeof code);
    return;
  }
  const uint16_t bits = dtype == ANYATTN_DTYPE_FLOAT16 ? float16_of(value) : bfloat16_of(value);
  std::memcpy(at, &bits, sizeof bits);
}

float load_element(uint32_t dtype, const void* at) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == ANYATTN_DTYPE_FLOAT8_E4M3FN) {
    uint8_t code;
    std::memcpy(&code, at, sizeof code);
    return float_of_float8(dtype, code);
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == ANYATTN_DTYPE_FLOAT16 ? float_of_float16(bits) : float_of_bfloat16(bits);
}

}  // namespace anyattn::conformance
