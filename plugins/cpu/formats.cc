// SPDX-License-Identifier: Apache-2.0
#include "formats.h"

#include "anyattn/dtypes.hpp"

namespace anyattn::cpu {
namespace {

constexpr CacheFormat kFormats[] = {
    {"float32", kRowsF32, ANYATTN_DTYPE_FLOAT32, 1, 0, true, true},
    {"float16", kRowsF16, ANYATTN_DTYPE_FLOAT16, 1, 0, true, true},
    {"bfloat16", kRowsBF16, ANYATTN_DTYPE_BFLOAT16, 1, 0, true, true},
    {"fp8", kRowsE4M3, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 0, true, true},
    {"fp8_e4m3", kRowsE4M3, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 0, true, true},
    {"fp8_e5m2", kRowsE5M2, ANYATTN_DTYPE_FLOAT8_E5M2, 1, 0, true, true},
    {"int8_per_token_head", kRowsInt8Scaled, ANYATTN_DTYPE_INT8, 1, 4, true, false},
    {"fp8_per_token_head", kRowsE4M3Scaled, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 4, true, false},
    {"int4_per_token_head", kRowsInt4Scaled, ANYATTN_DTYPE_UINT8, 2, 4, true, false},
    {"fp8_ds_mla", kRowsRecord, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 0, false, true},
};

}  // namespace

uint32_t CacheFormat::code_bytes(uint32_t size) const { return size / packed * dtype_bytes(dtype); }

const CacheFormat* find_format(std::string_view name, bool latent) {
  for (const CacheFormat& format : kFormats)
    if (name == format.name && (latent ? format.latent : format.plain)) return &format;
  return nullptr;
}

const CacheFormat& float_format(uint32_t dtype) {
  for (const CacheFormat& format : kFormats)
    if (format.dtype == dtype) return format;
  return kFormats[0];
}

std::string format_names(bool latent) {
  std::string names;
  for (const CacheFormat& format : kFormats)
    if (latent ? format.latent : format.plain) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

}  // namespace anyattn::cpu
