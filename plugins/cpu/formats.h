// SPDX-License-Identifier: Apache-2.0
// Cache formats as the kernels number them. Included by plan, cache and the backends. The bytes themselves are written and read in
// formats-inl.h.
#pragma once

#include "anyattn/kv_formats.hpp"
#include "kernel.h"

namespace anyattn::cpu {

static_assert(kRowsF32 == static_cast<int>(Coding::kFloat32) && kRowsF16 == static_cast<int>(Coding::kFloat16) &&
              kRowsBF16 == static_cast<int>(Coding::kBFloat16) && kRowsE4M3 == static_cast<int>(Coding::kE4M3) &&
              kRowsE5M2 == static_cast<int>(Coding::kE5M2) && kRowsInt8Scaled == static_cast<int>(Coding::kInt8Scaled) &&
              kRowsE4M3Scaled == static_cast<int>(Coding::kE4M3Scaled) &&
              kRowsInt4Scaled == static_cast<int>(Coding::kInt4Scaled) && kRowsRecord == static_cast<int>(Coding::kRecord));
constexpr RowFormat rows_of(const CacheFormat& format) { return static_cast<RowFormat>(format.coding); }

// Rows of a float dtype, uncoded; float32 for any other.
constexpr const CacheFormat& float_format(uint32_t dtype) {
  for (const CacheFormat& format : kCacheFormats)
    if (format.dtype == dtype && format.coding <= Coding::kBFloat16) return format;
  return kCacheFormats[0];
}

}  // namespace anyattn::cpu
