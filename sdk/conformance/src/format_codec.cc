// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

#include "anyattn/conformance/cache_format.h"
#include "anyattn/conformance/numbers.h"
#include "anyattn/kv_cache.h"

namespace anyattn::conformance {
namespace {

constexpr size_t kTileValues = 128;
constexpr int kMostRotated = 4096;                    // as many signs are drawn
constexpr int kRecordLatent = 512, kRecordRope = 64;  // of fp8_ds_mla

constexpr CacheFormat kFormats[] = {
    {"float32", Coding::kFloat, ANYATTN_DTYPE_FLOAT32},
    {"float16", Coding::kFloat, ANYATTN_DTYPE_FLOAT16},
    {"bfloat16", Coding::kFloat, ANYATTN_DTYPE_BFLOAT16},
    {"fp8", Coding::kFp8, ANYATTN_DTYPE_FLOAT8_E4M3FN},
    {"fp8_e4m3", Coding::kFp8, ANYATTN_DTYPE_FLOAT8_E4M3FN},
    {"fp8_e5m2", Coding::kFp8, ANYATTN_DTYPE_FLOAT8_E5M2},
    {"int8_per_token_head", Coding::kRow8, ANYATTN_DTYPE_INT8},
    {"fp8_per_token_head", Coding::kRow8, ANYATTN_DTYPE_FLOAT8_E4M3FN},
    {"int4_per_token_head", Coding::kRow4, ANYATTN_DTYPE_UINT8},
    {"fp8_ds_mla", Coding::kTiles, ANYATTN_DTYPE_FLOAT8_E4M3FN},
};

uint32_t role_of(RowKind kind) {
  return kind == RowKind::kK ? ANYATTN_PLANE_K : kind == RowKind::kV ? ANYATTN_PLANE_V : ANYATTN_PLANE_LATENT;
}
uint32_t scale_role_of(RowKind kind) { return kind == RowKind::kK ? ANYATTN_PLANE_K_SCALE : ANYATTN_PLANE_V_SCALE; }

std::byte byte_of(int code) { return static_cast<std::byte>(static_cast<uint8_t>(code)); }

template <class T>
void append(std::vector<std::byte>* bytes, T value) {
  const auto at = bytes->size();
  bytes->resize(at + sizeof value);
  std::memcpy(bytes->data() + at, &value, sizeof value);
}

template <class T>
T element(const StoredPiece& piece, size_t index) {
  T value;
  std::memcpy(&value, piece.bytes.data() + index * sizeof value, sizeof value);
  return value;
}

StoredPiece floats(uint32_t role, uint32_t dtype, std::span<const float> row, float scale) {
  StoredPiece piece{role, dtype, std::vector<std::byte>(row.size() * dtype_bytes(dtype))};
  for (size_t i = 0; i < row.size(); ++i) store_element(dtype, piece.bytes.data() + i * dtype_bytes(dtype), row[i] / scale);
  return piece;
}

StoredPiece float8s(uint32_t role, uint32_t dtype, std::span<const float> row, float scale) {
  StoredPiece piece{role, dtype, {}};
  for (const float value : row) piece.bytes.push_back(std::byte{float8_of(dtype, value / scale)});
  return piece;
}

StoredPiece scales(uint32_t role, std::vector<float> values) {
  StoredPiece piece{role, ANYATTN_DTYPE_FLOAT32, {}};
  for (const float value : values) append(&piece.bytes, value);
  return piece;
}

bool all_finite(std::span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
}

float largest_magnitude(std::span<const float> row) {
  float most = 0.0f;
  for (const float value : row) most = std::max(most, std::fabs(value));
  return most;
}

// As the formats say it: trunc(x + 0.5) or trunc(x - 0.5) in float32, so that halves go away from zero.
float whole(float x) { return std::trunc(x + std::copysign(0.5f, x)); }

std::vector<StoredPiece> encode_row8(const CacheFormat& format, RowKind kind, std::span<const float> row) {
  const bool integers = format.dtype == ANYATTN_DTYPE_INT8;
  const float most = integers ? 127.0f : 448.0f;
  if (!all_finite(row)) {
    return {{role_of(kind), format.dtype, std::vector<std::byte>(row.size())},
            scales(scale_role_of(kind), {std::numeric_limits<float>::quiet_NaN()})};
  }
  const float scale = std::max(largest_magnitude(row) / most, 1e-6f);
  if (!integers) return {float8s(role_of(kind), format.dtype, row, scale), scales(scale_role_of(kind), {scale})};
  StoredPiece codes{role_of(kind), format.dtype, {}};
  for (const float value : row) {
    codes.bytes.push_back(byte_of(static_cast<int>(std::clamp(whole(value / scale), -128.0f, 127.0f))));
  }
  return {codes, scales(scale_role_of(kind), {scale})};
}

std::vector<StoredPiece> encode_row4(const CacheFormat& format, RowKind kind, std::span<const float> row) {
  std::vector<float> turned(row.begin(), row.end());
  rotate(turned);
  StoredPiece codes{role_of(kind), format.dtype, std::vector<std::byte>(row.size() / 2)};
  if (!all_finite(turned)) return {codes, scales(scale_role_of(kind), {std::bit_cast<float>(0x7fc00000u)})};
  const auto [low, high] = std::minmax_element(turned.begin(), turned.end());
  const float scale = std::max((*high - *low) / 15.0f, 1e-6f);
  const float zero = std::clamp(whole(-*low / scale), 0.0f, 15.0f);
  for (size_t i = 0; i < turned.size(); ++i) {
    const auto code = static_cast<int>(std::clamp(whole(turned[i] / scale + zero), 0.0f, 15.0f));
    codes.bytes[i / 2] |= byte_of(i % 2 == 0 ? code : code << 4);
  }
  const uint32_t word = (std::bit_cast<uint32_t>(scale) & ~15u) | static_cast<uint32_t>(zero);
  return {codes, scales(scale_role_of(kind), {std::bit_cast<float>(word)})};
}

std::vector<StoredPiece> encode_tiles(const CacheFormat& format, std::span<const float> row, size_t latent_size) {
  StoredPiece codes{ANYATTN_PLANE_LATENT_C, format.dtype, {}};
  std::vector<float> of_tiles;
  for (size_t first = 0; first < latent_size; first += kTileValues) {
    const auto tile = row.subspan(first, kTileValues);
    const bool finite = all_finite(tile);
    const float scale = finite ? std::max(largest_magnitude(tile) / 448.0f, FLT_MIN) : std::numeric_limits<float>::quiet_NaN();
    for (const float value : tile)
      codes.bytes.push_back(std::byte{finite ? float8_of(format.dtype, value / scale) : uint8_t{0}});
    of_tiles.push_back(scale);
  }
  return {codes, scales(ANYATTN_PLANE_LATENT_SCALE, of_tiles),
          floats(ANYATTN_PLANE_LATENT_PE, ANYATTN_DTYPE_BFLOAT16, row.subspan(latent_size), 1.0f)};
}

// Magnitudes of the codes 0, 1, ... up to the largest finite one: they ascend.
const std::vector<float>& float8_magnitudes(uint32_t dtype) {
  const auto make = [](uint32_t of, int count) {
    std::vector<float> values;
    for (int code = 0; code < count; ++code) values.push_back(float_of_float8(of, static_cast<uint8_t>(code)));
    return values;
  };
  static const std::vector<float> e4m3 = make(ANYATTN_DTYPE_FLOAT8_E4M3FN, 0x7f);
  static const std::vector<float> e5m2 = make(ANYATTN_DTYPE_FLOAT8_E5M2, 0x7c);
  return dtype == ANYATTN_DTYPE_FLOAT8_E4M3FN ? e4m3 : e5m2;
}

}  // namespace

const CacheFormat* find_cache_format(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto& format) { return format.name == name; });
  return at == std::end(kFormats) ? nullptr : at;
}

std::vector<std::string_view> cache_format_names(bool latent) {
  std::vector<std::string_view> names;
  for (const CacheFormat& format : kFormats) {
    const bool rows_only = format.coding == Coding::kRow8 || format.coding == Coding::kRow4;
    if (latent ? !rows_only : format.coding != Coding::kTiles) names.push_back(format.name);
  }
  return names;
}

std::string why_no_row(const CacheFormat& format, int size, int kv_lora_rank) {
  const std::string name(format.name);
  if (format.coding == Coding::kRow4 && (size < 2 || size > kMostRotated || !std::has_single_bit(static_cast<unsigned>(size))))
    return name + " rotates its rows, whose size must be a power of two from 2 to " + std::to_string(kMostRotated) +
           "; it is " + std::to_string(size);
  if (format.coding == Coding::kTiles && (kv_lora_rank != kRecordLatent || size != kRecordLatent + kRecordRope))
    return name + " has records of kv_lora_rank " + std::to_string(kRecordLatent) + " and qk_rope_head_dim " +
           std::to_string(kRecordRope) + " only; these are " + std::to_string(kv_lora_rank) + " and " +
           std::to_string(size - kv_lora_rank);
  return {};
}

float float_of_float8(uint32_t dtype, uint8_t bits) {
  const bool e4m3 = dtype == ANYATTN_DTYPE_FLOAT8_E4M3FN;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (e4m3 && (bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  if (!e4m3 && exponent == 31)
    return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa_bits);
}

uint8_t float8_of(uint32_t dtype, float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const std::vector<float>& magnitudes = float8_magnitudes(dtype);
  const float magnitude = std::fabs(value);
  const auto above = std::upper_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  if (above == magnitudes.end()) return sign | static_cast<uint8_t>(magnitudes.size() - 1);
  const auto below = static_cast<size_t>(above - magnitudes.begin()) - 1;
  // Distances of neighbours are exact in double.
  const double down = static_cast<double>(magnitude) - static_cast<double>(magnitudes[below]);
  const double up = static_cast<double>(*above) - static_cast<double>(magnitude);
  const bool take_above = up < down || (up == down && below % 2 == 1);
  return sign | static_cast<uint8_t>(below + (take_above ? 1 : 0));
}

std::vector<float> rotation_signs(size_t size) {
  // torch.bernoulli(0.5) of its CPU generator: one 32-bit draw an element, its low 24 bits as a fraction below 0.5 are +1.
  static const std::vector<float> drawn = [] {
    std::mt19937 generator(0x9E3779B9u);
    std::vector<float> signs;
    for (int i = 0; i < 4096; ++i) signs.push_back((generator() & 0xffffffu) < 0x800000u ? 1.0f : -1.0f);
    return signs;
  }();
  return {drawn.begin(), drawn.begin() + static_cast<ptrdiff_t>(size)};
}

namespace {

// Sums and differences of neighbours at distance 1, then 2, 4, ...: the order is part of the format, since sums round.
void hadamard(std::span<float> row) {
  for (size_t distance = 1; distance < row.size(); distance *= 2) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i & distance) continue;
      const float a = row[i], b = row[i + distance];
      row[i] = a + b;
      row[i + distance] = a - b;
    }
  }
}

}  // namespace

void rotate(std::span<float> row) {
  const std::vector<float> signs = rotation_signs(row.size());
  for (size_t i = 0; i < row.size(); ++i) row[i] *= signs[i];
  hadamard(row);
}

void rotate_back(std::span<float> row) {
  const std::vector<float> signs = rotation_signs(row.size());
  std::vector<double> sums(row.begin(), row.end());
  for (size_t distance = 1; distance < sums.size(); distance *= 2) {
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i & distance) continue;
      const double a = sums[i], b = sums[i + distance];
      sums[i] = a + b;
      sums[i + distance] = a - b;
    }
  }
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(sums[i] / static_cast<double>(row.size())) * signs[i];
}

std::vector<StoredPiece> encode_row(const CacheFormat& format, RowKind kind, std::span<const float> row, float scale,
                                    int kv_lora_rank) {
  if (const std::string why = why_no_row(format, static_cast<int>(row.size()), kv_lora_rank); !why.empty())
    throw std::invalid_argument(why);
  switch (format.coding) {
    case Coding::kFloat:
      return {floats(role_of(kind), format.dtype, row, scale)};
    case Coding::kFp8:
      return {float8s(role_of(kind), format.dtype, row, scale)};
    case Coding::kRow8:
      return encode_row8(format, kind, row);
    case Coding::kRow4:
      return encode_row4(format, kind, row);
    case Coding::kTiles:
      return encode_tiles(format, row, static_cast<size_t>(kv_lora_rank));
  }
  return {};
}

void decode_row(const CacheFormat& format, std::span<const StoredPiece> pieces, float scale, std::span<float> values) {
  const StoredPiece& codes = pieces[0];
  const auto code8 = [&](size_t i) {
    return format.dtype == ANYATTN_DTYPE_INT8 ? static_cast<float>(element<int8_t>(codes, i))
                                              : float_of_float8(format.dtype, element<uint8_t>(codes, i));
  };
  switch (format.coding) {
    case Coding::kFloat: {
      const size_t bytes = dtype_bytes(format.dtype);
      for (size_t i = 0; i < values.size(); ++i) values[i] = load_element(format.dtype, codes.bytes.data() + i * bytes) * scale;
      return;
    }
    case Coding::kFp8:
      for (size_t i = 0; i < values.size(); ++i) values[i] = code8(i) * scale;
      return;
    case Coding::kRow8:
      for (size_t i = 0; i < values.size(); ++i) values[i] = code8(i) * element<float>(pieces[1], 0);
      return;
    case Coding::kRow4: {
      const auto word = element<uint32_t>(pieces[1], 0);
      const float step = std::bit_cast<float>(word & ~15u);
      for (size_t i = 0; i < values.size(); ++i) {
        const int byte = element<uint8_t>(codes, i / 2), code = i % 2 == 0 ? byte & 15 : byte >> 4;
        values[i] = static_cast<float>(code - static_cast<int>(word & 15u)) * step;
      }
      return rotate_back(values);
    }
    case Coding::kTiles: {
      const size_t latent_size = codes.bytes.size();
      for (size_t i = 0; i < latent_size; ++i) values[i] = code8(i) * element<float>(pieces[1], i / kTileValues);
      for (size_t i = latent_size; i < values.size(); ++i)
        values[i] = float_of_bfloat16(element<uint16_t>(pieces[2], i - latent_size));
      return;
    }
  }
}

size_t stored_row_bytes(const CacheFormat& format, int size, int kv_lora_rank) {
  const std::vector<float> zeros(static_cast<size_t>(size));
  size_t bytes = 0;
  for (const StoredPiece& piece : encode_row(format, RowKind::kK, zeros, 1.0f, kv_lora_rank)) bytes += piece.bytes.size();
  return bytes;
}

void through_cache(const CacheFormat& format, RowKind kind, std::span<float> row, float scale, int kv_lora_rank) {
  decode_row(format, encode_row(format, kind, row, scale, kv_lora_rank), scale, row);
}

}  // namespace anyattn::conformance
