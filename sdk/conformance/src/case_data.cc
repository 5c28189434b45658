// SPDX-License-Identifier: Apache-2.0
#include "case_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "format_case.h"
#include "stories.h"

namespace anyattn::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void round_all(uint32_t dtype, std::vector<float>* values) {
  for (float& value : *values) value = rounded(dtype, value);
}

// Values become multiples of out_scale, none past the largest float8_e4m3fn.
void count_in_codes(double out_scale, Reference* reference) {
  constexpr double kLargest = 448.0;
  for (std::vector<double>* values : {&reference->exact, &reference->naive}) {
    for (double& value : *values) value = std::clamp(value / out_scale, -kLargest, kLargest);
  }
  reference->max_value /= out_scale;
}

void lay_out_rows(const Case& c, PlainData* data) {
  data->prefix = c.prefix;
  data->query_start_loc = {0};
  int64_t row = c.prefix;
  for (const RequestLens& lens : c.lens) {
    data->query_start_loc.push_back(data->query_start_loc.back() + lens.query_len);
    data->own_start.push_back(row);
    row += std::max<int64_t>(0, lens.key_len - c.prefix);
  }
  data->num_key_rows = row;
  data->num_tokens = data->query_start_loc.back() + c.pad_rows;
}

void draw_uniform(const Case& c, PlainData* data) {
  const size_t q_row = static_cast<size_t>(c.num_q_heads) * static_cast<size_t>(c.head_size);
  if (c.q_each) {
    for (size_t r = 0; r < c.lens.size(); ++r) {
      const auto part = draw(c.seeds[0] + r, static_cast<size_t>(c.lens[r].query_len) * q_row);
      data->q.insert(data->q.end(), part.begin(), part.end());
    }
  } else {
    data->q = draw(c.seeds[0], static_cast<size_t>(data->query_start_loc.back()) * q_row);
  }
  const auto rows = static_cast<size_t>(data->num_key_rows * c.num_kv_heads);
  data->k = draw(c.seeds[1], rows * static_cast<size_t>(data->shape.head_size));
  data->v = draw(c.seeds[2], rows * static_cast<size_t>(data->shape.head_size_v));
}

void fill_ramp(PlainData* data) {
  std::fill(data->q.begin(), data->q.end(), 0.0f);
  const size_t width = data->v.size() / static_cast<size_t>(data->num_key_rows);
  for (size_t i = 0; i < data->v.size(); ++i) data->v[i] = static_cast<float>(i / width);
}

// Scaled scores 100 * {10, 50, 100, -100}; v rows are the unit vectors.
void fill_cap(const Case& c, PlainData* data) {
  constexpr float kKeys[] = {10.0f, 50.0f, 100.0f, -100.0f};
  std::fill(data->q.begin(), data->q.end(), 0.0f);
  std::fill(data->k.begin(), data->k.end(), 0.0f);
  std::fill(data->v.begin(), data->v.end(), 0.0f);
  const auto depth = static_cast<size_t>(c.head_size);
  const auto width = static_cast<size_t>(data->shape.head_size_v);
  for (size_t i = 0; i < data->q.size(); i += depth) data->q[i] = 100.0f;
  for (size_t i = 0; i < data->k.size(); i += depth) {
    const size_t row = i / depth / static_cast<size_t>(c.num_kv_heads) % 4;
    data->k[i] = kKeys[row];
  }
  for (size_t i = 0; i < data->v.size(); i += width) {
    const size_t row = i / width / static_cast<size_t>(c.num_kv_heads) % 4;
    if (row < width) data->v[i + row] = 1.0f;
  }
}

void grow_by_powers(const Case& c, PlainData* data) {
  const auto grow = [&](std::vector<float>* values, int64_t size, size_t shift) {
    const size_t width = static_cast<size_t>(c.num_kv_heads * size);
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] *= static_cast<float>(1 << ((i / width + shift) % 5));
  };
  grow(&data->k, data->shape.head_size, 0);
  grow(&data->v, data->shape.head_size_v, 2);
}

// top_k different positions of the request, those the row could see causally, in no order; -1 fills the rest.
void draw_sparse(const Case& c, PlainData* data) {
  SplitMix64 generator(c.seeds[0] + 77);
  data->sparse.assign(static_cast<size_t>(data->num_tokens) * static_cast<size_t>(c.top_k), -1);
  for (size_t r = 0; r < c.lens.size(); ++r) {
    for (int32_t i = 0; i < c.lens[r].query_len; ++i) {
      std::vector<int32_t> positions(static_cast<size_t>(std::max(0, c.lens[r].key_len - c.lens[r].query_len + i + 1)));
      for (size_t j = 0; j < positions.size(); ++j) positions[j] = static_cast<int32_t>(j);
      for (size_t j = positions.size(); j > 1; --j) std::swap(positions[j - 1], positions[generator.below(j)]);
      const size_t row = static_cast<size_t>(data->query_start_loc[r] + i) * static_cast<size_t>(c.top_k);
      const size_t count = std::min(positions.size(), static_cast<size_t>(c.top_k));
      std::copy_n(positions.begin(), count, data->sparse.begin() + static_cast<ptrdiff_t>(row));
    }
  }
}

}  // namespace

std::vector<float> alibi_slopes(int num_heads, int of, int first) {
  std::vector<float> slopes;
  for (int h = 0; h < num_heads; ++h) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * (h + first + 1) / of)));
  }
  return slopes;
}

PlainData make_plain_data(const Case& c, const std::string& model_file) {
  PlainData data;
  data.shape = {c.num_q_heads, c.num_kv_heads, c.head_size, c.head_size_v > 0 ? c.head_size_v : c.head_size};
  data.softmax_scale = c.softmax_scale > 0.0 ? c.softmax_scale : 1.0 / std::sqrt(static_cast<double>(c.head_size));
  lay_out_rows(c, &data);
  if (c.data == Data::kStories) {
    read_stories(c, model_file, &data);
  } else {
    draw_uniform(c, &data);
  }
  if (c.data == Data::kRamp) fill_ramp(&data);
  if (c.data == Data::kCap) fill_cap(c, &data);
  if (c.data == Data::kPowers) grow_by_powers(c, &data);
  for (float& value : data.q) value *= static_cast<float>(c.gain);
  const size_t q_row = static_cast<size_t>(c.num_q_heads) * static_cast<size_t>(c.head_size);
  for (size_t r = 0; c.data == Data::kNanQ && r < c.lens.size(); ++r)
    std::fill_n(data.q.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(data.query_start_loc[r]) * q_row),
                c.lens[r].query_len > 0 ? q_row : 0, kNan);
  data.q.resize(static_cast<size_t>(data.num_tokens) * q_row, kNan);
  round_all(c.dtype, &data.q);
  data.q = q_values_of(c, std::move(data.q));
  round_all(c.dtype, &data.k);
  round_all(c.dtype, &data.v);
  if (c.kind == Kind::kPaged) {
    data.stored_k = stored_rows(c, RowKind::kK, data.k, c.num_kv_heads, data.shape.head_size, k_scales_of(c));
    data.stored_v = stored_rows(c, RowKind::kV, data.v, c.num_kv_heads, data.shape.head_size_v, v_scales_of(c));
  } else {
    data.stored_k = data.k;
    data.stored_v = data.v;
  }

  if (c.alibi != Alibi::kNone) {
    data.slopes = alibi_slopes(c.num_q_heads, c.slopes_of > 0 ? c.slopes_of : c.num_q_heads, c.slopes_first);
  }
  if (!c.sinks.empty()) {
    for (int h = 0; h < c.num_q_heads; ++h) data.sinks.push_back(c.sinks[static_cast<size_t>(h) % c.sinks.size()]);
  }
  if (c.top_k > 0) draw_sparse(c, &data);
  data.mm.resize(c.lens.size());
  for (const MmSpan& span : c.mm) data.mm[static_cast<size_t>(span.request)].push_back({span.first, span.last});
  return data;
}

RowRules rules_of(const Case& c, const PlainData& data, size_t request, uint32_t rank) {
  RowRules rules;
  rules.softmax_scale = data.softmax_scale;
  rules.causal = c.causal.empty() ? !c.non_causal : c.causal[request] != 0;
  rules.window_left = c.window_left;
  rules.window_right = c.window_right;
  rules.soft_cap = c.soft_cap;
  rules.chunk_size = c.chunk_size;
  rules.alibi = c.alibi;
  rules.alibi_slopes = data.slopes;
  if (rank == 0) rules.sinks = data.sinks;
  rules.mm_ranges = data.mm[request];
  rules.sparse = c.top_k > 0;
  if (c.cp_world_size > 0) {
    rules.cp_world_size = static_cast<uint32_t>(c.cp_world_size);
    rules.cp_interleave = static_cast<uint32_t>(c.cp_interleave);
    rules.cp_rank = rank;
  }
  return rules;
}

Reference plain_reference(const Case& c, const PlainData& data, uint32_t rank) {
  Reference reference;
  const size_t q_row = static_cast<size_t>(c.num_q_heads) * static_cast<size_t>(c.head_size);
  const size_t k_row = static_cast<size_t>(c.num_kv_heads) * static_cast<size_t>(data.shape.head_size);
  const size_t v_row = static_cast<size_t>(c.num_kv_heads) * static_cast<size_t>(data.shape.head_size_v);
  for (size_t r = 0; r < c.lens.size(); ++r) {
    RowRules rules = rules_of(c, data, r, rank);
    const auto read = [&](const std::vector<float>& from, size_t width) {
      return [&, width](int64_t key, float* into) {
        const float* row = from.data() + static_cast<size_t>(data.key_row(r, position_of_key(rules, key))) * width;
        std::copy_n(row, width, into);
      };
    };
    const KeyReader keys{read(data.stored_k, k_row), read(data.stored_v, v_row)};
    const auto [query_len, key_len] = c.lens[r];
    const int64_t num_keys = shard_length(key_len, rules.cp_world_size, rules.cp_rank, rules.cp_interleave);
    for (int32_t i = 0; i < query_len; ++i) {
      const auto row = static_cast<size_t>(data.query_start_loc[r] + i);
      if (rules.sparse)
        rules.sparse_indices = {data.sparse.data() + row * static_cast<size_t>(c.top_k), static_cast<size_t>(c.top_k)};
      attend_row(data.shape, rules, key_len - query_len + i, num_keys, data.q.data() + row * q_row, keys, q_dtype_of(c),
                 &reference);
    }
  }
  for (int i = 0; i < c.pad_rows; ++i) append_empty_row(data.shape, &reference);
  if (c.out_scale > 0) count_in_codes(static_cast<double>(c.out_scale), &reference);
  return reference;
}

bool any_row_sees(const Case& c, const PlainData& data, size_t request, int64_t position) {
  const RowRules rules = rules_of(c, data, request, 0);
  const auto [query_len, key_len] = c.lens[request];
  for (int32_t i = 0; i < query_len; ++i) {
    if (sees(rules, key_len - query_len + i, position)) return true;
  }
  return false;
}

}  // namespace anyattn::conformance
