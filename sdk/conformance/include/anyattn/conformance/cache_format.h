// SPDX-License-Identifier: Apache-2.0
// Cache formats as ABI.md lists them, written plainly: how one row becomes bytes and what the bytes mean. Included by the kit,
// by tests and by `anyattn run`. Shares no code with any backend; speed does not matter here.
//
// Float8 rounds to nearest even and saturates; NaN stays NaN. Codes of int8 and int4 round half away from zero. A row that
// gets a scale of its own and holds a NaN or an infinity gets the scale NaN and codes 0: it reads as NaN, never as a number.
#ifndef ANYATTN_CONFORMANCE_CACHE_FORMAT_H
#define ANYATTN_CONFORMANCE_CACHE_FORMAT_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anyattn::conformance {

enum class Coding {
  kFloat,  // float32, float16, bfloat16
  kFp8,    // e4m3 or e5m2: value / scale of the call
  kRow8,   // int8 or e4m3 with one scale a row, beside it
  kRow4,   // 4 bits with scale and zero point of the row, rotated
  kTiles,  // e4m3 with a scale for each 128 values, the rope part as bfloat16: records of 656 bytes
};

struct CacheFormat {
  std::string_view name;  // as kv_cache_dtype says it
  Coding coding = Coding::kFloat;
  uint32_t dtype = 0;  // of the plane's elements
};

// Null where the kit does not know the name.
const CacheFormat* find_cache_format(std::string_view name);
// Names in a fixed order: all of them, or those a latent (MLA) cache has.
std::vector<std::string_view> cache_format_names(bool latent);

// The tensor roles a row is stored as. A plain row is K or V; a latent one is [kv_c | k_pe].
enum class RowKind { kK, kV, kLatent };

// Elements of one plane: `bytes` holds them densely, each as wide as `dtype`.
struct StoredPiece {
  uint32_t role = 0;  // ANYATTN_PLANE_*
  uint32_t dtype = 0;
  std::vector<std::byte> bytes;
};

// Why the format has no rows of `size` values (latent: kv_lora_rank and rope together), as one sentence; empty where it has.
std::string why_no_row(const CacheFormat& format, int size, int kv_lora_rank = 0);

// `scale` is the call's k_scale or v_scale for this head, 1 where there is none. kv_lora_rank is read with kTiles. Throws
// std::invalid_argument with why_no_row.
std::vector<StoredPiece> encode_row(const CacheFormat& format, RowKind kind, std::span<const float> row, float scale,
                                    int kv_lora_rank = 0);
// What the pieces of a row mean; `values` has the row's size.
void decode_row(const CacheFormat& format, std::span<const StoredPiece> pieces, float scale, std::span<float> values);
// encode_row and decode_row: what a reader gets of `row`.
void through_cache(const CacheFormat& format, RowKind kind, std::span<float> row, float scale, int kv_lora_rank = 0);

// Bytes of a row of `size` values with its scales.
size_t stored_row_bytes(const CacheFormat& format, int size, int kv_lora_rank = 0);

// Float8: ANYATTN_DTYPE_FLOAT8_E4M3FN or _E5M2.
uint8_t float8_of(uint32_t dtype, float value);
float float_of_float8(uint32_t dtype, uint8_t bits);

// Signs of the rotation of 4-bit rows: +1 or -1 for each element, the same for every size.
std::vector<float> rotation_signs(size_t size);
// H diag(signs) row, H the Hadamard matrix of the row's size (a power of two, not normalised), and its inverse.
void rotate(std::span<float> row);
void rotate_back(std::span<float> row);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_CACHE_FORMAT_H
