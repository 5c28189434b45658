// SPDX-License-Identifier: Apache-2.0
// Cache formats by name, as sdk/ABI.md states them: which rows the kernels see, which planes a spec has. Included by plan,
// cache and the backends. The bytes themselves are written and read in formats-inl.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "anyattn/types.h"
#include "kernel.h"

namespace anyattn::cpu {

struct CacheFormat {
  const char* name;
  RowFormat rows;
  uint32_t dtype;      // of the elements of a K, V or latent plane
  uint32_t packed;     // codes an element
  uint32_t beside;     // bytes of scales behind the codes of a row
  bool plain, latent;  // caches it is for
  bool is_float() const { return rows <= kRowsBF16; }
  bool scaled_by_call() const { return rows <= kRowsE5M2; }  // k_scale and v_scale, else its rows have scales of their own
  uint32_t code_bytes(uint32_t size) const;                  // of a row of `size` values
  uint32_t row_bytes(uint32_t size) const { return code_bytes(size) + beside; }
};

// Null where the family has no such format.
const CacheFormat* find_format(std::string_view name, bool latent);
const CacheFormat& float_format(uint32_t dtype);
// All names, for texts.
std::string format_names(bool latent);

}  // namespace anyattn::cpu
