// SPDX-License-Identifier: Apache-2.0
#include "format_case.h"

#include "anyattn/conformance/numbers.h"

namespace anyattn::conformance {
namespace {

std::vector<float> scales_of(const Case& c, size_t side) {
  if (c.kv_scales.empty()) return {};
  if (!c.head_scales) return {c.kv_scales[side]};
  std::vector<float> scales;
  for (int head = 0; head < c.num_kv_heads; ++head) scales.push_back(c.kv_scales[side] * static_cast<float>(head + 1));
  return scales;
}

}  // namespace

const CacheFormat& format_of(const Case& c) {
  const std::string name = c.format.empty() ? std::string(dtype_name(c.dtype)) : c.format;
  const CacheFormat* format = find_cache_format(name);
  if (!format) throw CaseError("case: the kit knows no cache format '" + name + "'");
  return *format;
}

std::vector<float> k_scales_of(const Case& c) { return scales_of(c, 0); }
std::vector<float> v_scales_of(const Case& c) { return scales_of(c, 1); }

float scale_for(const std::vector<float>& scales, int64_t head) {
  if (scales.empty()) return 1.0f;
  return scales.size() == 1 ? scales[0] : scales[static_cast<size_t>(head)];
}

std::vector<float> stored_rows(const Case& c, RowKind kind, const std::vector<float>& rows, int64_t heads, int64_t size,
                               const std::vector<float>& scales) {
  const CacheFormat& format = format_of(c);
  std::vector<float> stored(rows);
  if (format.dtype == c.dtype && format.coding == Coding::kFloat && scales.empty()) return stored;
  for (size_t row = 0; row * static_cast<size_t>(size) < stored.size(); ++row) {
    const std::span<float> values(stored.data() + row * static_cast<size_t>(size), static_cast<size_t>(size));
    through_cache(format, kind, values, scale_for(scales, static_cast<int64_t>(row) % heads), c.kv_lora_rank);
  }
  return stored;
}

}  // namespace anyattn::conformance
