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

float float8_value(float value) {
  return float_of_float8(ANYATTN_DTYPE_FLOAT8_E4M3FN, float8_of(ANYATTN_DTYPE_FLOAT8_E4M3FN, value));
}

// value = change(value, its scale) over q [any, num_q_heads, head_size]; nothing without q_scale.
template <class F>
void for_each_scale(const Case& c, std::vector<float>* q, F change) {
  if (!(c.q_scale > 0)) return;
  const auto heads = static_cast<size_t>(c.num_q_heads), kv_heads = static_cast<size_t>(c.num_kv_heads);
  for (size_t i = 0; i < q->size(); ++i) {
    const size_t kv_head = i / static_cast<size_t>(c.head_size) % heads * kv_heads / heads;
    (*q)[i] = change((*q)[i], c.head_scales ? c.q_scale * static_cast<float>(kv_head + 1) : c.q_scale);
  }
}

}  // namespace

const CacheFormat& format_of(const Case& c) {
  const std::string name = c.format.empty() ? std::string(dtype_name(c.dtype)) : c.format;
  const CacheFormat* format = find_cache_format(name);
  if (!format) throw CaseError("case: the kit knows no cache format '" + name + "'");
  return *format;
}

std::vector<float> q_scales_of(const Case& c) {
  std::vector<float> scales{c.q_scale};
  for (int h = 1; c.head_scales && h < c.num_kv_heads; ++h) scales.push_back(c.q_scale * static_cast<float>(h + 1));
  return scales;
}

std::vector<float> q_codes_of(const Case& c, std::vector<float> q) {
  for_each_scale(c, &q, [](float value, float scale) { return float8_value(value / scale); });
  return q;
}

std::vector<float> q_values_of(const Case& c, std::vector<float> q) {
  for_each_scale(c, &q, [](float value, float scale) { return float8_value(value / scale) * scale; });
  return q;
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
