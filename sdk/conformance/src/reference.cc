// SPDX-License-Identifier: Apache-2.0
#include "anyattn/conformance/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "anyattn/conformance/cache_format.h"
#include "anyattn/conformance/vector_widths.h"

namespace anyattn::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kLanes = 16;  // keys at a time: 8 SSE2 registers of doubles, 4 of floats

// wide[lane] and narrow[lane]: query . column of the transposed block, summed along depth in order.
ANYATTN_VECTOR_WIDTHS void dot_lanes(const float* query, const float* transposed, size_t depth, double* wide, float* narrow) {
  double wide_sums[kLanes] = {};
  float narrow_sums[kLanes] = {};
  for (size_t d = 0; d < depth; ++d) {
    const float value = query[d];
    const double wide_value = value;
    const float* column = transposed + d * kLanes;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      wide_sums[lane] += wide_value * static_cast<double>(column[lane]);
      narrow_sums[lane] += value * column[lane];
    }
  }
  std::copy_n(wide_sums, kLanes, wide);
  std::copy_n(narrow_sums, kLanes, narrow);
}

ANYATTN_VECTOR_WIDTHS void add_weighted(double wide, float narrow, const float* value, size_t width, double* wide_out,
                                        float* narrow_out) {
  for (size_t d = 0; d < width; ++d) wide_out[d] += wide * static_cast<double>(value[d]);
  for (size_t d = 0; d < width; ++d) narrow_out[d] += narrow * value[d];
}

bool in_one_range(std::span<const MmRange> ranges, int64_t a, int64_t b) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const MmRange& range) {
    return range.first <= a && a <= range.last && range.first <= b && b <= range.last;
  });
}

double alibi_bias(Alibi kind, double slope, int64_t position, int64_t key_position) {
  const auto distance = static_cast<double>(position - key_position);
  switch (kind) {
    case Alibi::kNone:
      return 0.0;
    case Alibi::kLinear:
      return -slope * distance;
    case Alibi::kSqrt:
      return distance >= 0 ? -slope * std::sqrt(distance) : 0.0;
    case Alibi::kSymmetric:
      return -slope * std::fabs(distance);
  }
  return 0.0;
}

// One row on its way from scores to the result.
struct Row {
  std::vector<int64_t> keys;       // visible local keys
  std::vector<int64_t> positions;  // theirs in the request
  std::vector<double> exact;       // [num_q_heads, keys]: scores, then probabilities
  std::vector<float> naive;        // likewise
};

// Dot products of every query head with kLanes keys; the sums run along head_size in order, in double and in float32.
void score_block(const HeadShape& shape, const float* q, const std::vector<float>& block, size_t count, size_t first,
                 Row* row) {
  const auto depth = static_cast<size_t>(shape.head_size);
  const auto row_size = depth * static_cast<size_t>(shape.num_kv_heads);
  const int group = shape.num_q_heads / shape.num_kv_heads;
  const size_t num_keys = row->keys.size();
  std::vector<float> transposed(depth * kLanes);
  for (int g = 0; g < shape.num_kv_heads; ++g) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float* key = block.data() + lane * row_size + static_cast<size_t>(g) * depth;
      for (size_t d = 0; d < depth; ++d) transposed[d * kLanes + lane] = key[d];
    }
    for (int h = g * group; h < (g + 1) * group; ++h) {
      double wide[kLanes];
      float narrow[kLanes];
      dot_lanes(q + static_cast<size_t>(h) * depth, transposed.data(), depth, wide, narrow);
      const size_t at = static_cast<size_t>(h) * num_keys + first;
      std::copy_n(wide, count, row->exact.begin() + static_cast<ptrdiff_t>(at));
      std::copy_n(narrow, count, row->naive.begin() + static_cast<ptrdiff_t>(at));
    }
  }
}

void score(const HeadShape& shape, const float* q, const KeyReader& reader, Row* row) {
  const size_t row_size = static_cast<size_t>(shape.head_size) * static_cast<size_t>(shape.num_kv_heads);
  std::vector<float> block(kLanes * row_size);
  for (size_t first = 0; first < row->keys.size(); first += kLanes) {
    const size_t count = std::min(kLanes, row->keys.size() - first);
    for (size_t lane = 0; lane < count; ++lane) reader.key(row->keys[first + lane], block.data() + lane * row_size);
    score_block(shape, q, block, count, first, row);
  }
}

constexpr uint32_t kCodes = ANYATTN_DTYPE_FLOAT8_E4M3FN;

// Probabilities as codes, the largest at 2^8: where the type still has its full precision for those 2^14 times smaller.
void round_to_codes(std::span<float> probabilities) {
  float top = 0.0f;
  for (float value : probabilities) top = std::max(top, value);
  if (!(top > 0.0f)) return;
  const float scale = 256.0f / top;
  for (float& value : probabilities) value = float_of_float8(kCodes, float8_of(kCodes, value * scale)) / scale;
}

// Scale, cap and bias: dot products become scores. The naive ones are rounded once, as they enter the softmax.
void finish_scores(const RowRules& rules, int64_t position, int head, uint32_t q_dtype, std::span<double> exact,
                   std::span<float> naive, const Row& row) {
  const double slope = rules.alibi == Alibi::kNone ? 0.0 : rules.alibi_slopes[static_cast<size_t>(head)];
  const auto cap = static_cast<float>(rules.soft_cap);
  for (size_t j = 0; j < exact.size(); ++j) {
    const double bias = alibi_bias(rules.alibi, slope, position, row.positions[j]);
    double wide = exact[j] * rules.softmax_scale;
    float narrow = naive[j] * static_cast<float>(rules.softmax_scale);
    if (rules.soft_cap > 0.0) {
      wide = rules.soft_cap * std::tanh(wide / rules.soft_cap);
      narrow = cap * std::tanh(narrow / cap);
    }
    exact[j] = wide + bias;
    naive[j] = rounded(q_dtype, narrow + static_cast<float>(bias));
  }
}

// Scores become probabilities in place; returns the natural log-sum-exp, -inf where there is nothing to sum, NaN where a score is.
template <class T>
T softmax(std::span<T> scores, const float* sink) {
  T top = -std::numeric_limits<T>::infinity();
  if (sink) top = static_cast<T>(*sink);
  for (T score : scores) top = score > top || std::isnan(score) ? score : top;
  if (std::isinf(top) && top < 0) return top;
  T sum = sink ? std::exp(static_cast<T>(*sink) - top) : T(0);
  for (T& score : scores) {
    score = std::exp(score - top);
    sum += score;
  }
  for (T& score : scores) score /= sum;
  return top + std::log(sum);
}

// Adds P . V of the row to the zeroed tails of `into`.
void accumulate(const HeadShape& shape, const KeyReader& reader, const Row& row, double* exact, float* naive,
                double* max_value) {
  const auto width = static_cast<size_t>(shape.head_size_v);
  const int group = shape.num_q_heads / shape.num_kv_heads;
  const size_t num_keys = row.keys.size();
  const size_t row_size = width * static_cast<size_t>(shape.num_kv_heads);
  std::vector<float> values(kLanes * row_size);
  for (size_t first = 0; first < num_keys; first += kLanes) {
    const size_t count = std::min(kLanes, num_keys - first);
    for (size_t lane = 0; lane < count; ++lane) reader.value(row.keys[first + lane], values.data() + lane * row_size);
    float top = 0.0f;
    for (size_t i = 0; i < count * row_size; ++i) top = std::max(top, std::fabs(values[i]));
    *max_value = std::max(*max_value, static_cast<double>(top));
    for (int h = 0; h < shape.num_q_heads; ++h) {
      // Key after key in a head: its sums stay in the first cache.
      for (size_t lane = 0; lane < count; ++lane) {
        const size_t at = static_cast<size_t>(h) * num_keys + first + lane;
        add_weighted(row.exact[at], row.naive[at], values.data() + lane * row_size + static_cast<size_t>(h / group) * width,
                     width, exact + static_cast<size_t>(h) * width, naive + static_cast<size_t>(h) * width);
      }
    }
  }
}

}  // namespace

int64_t shard_length(int64_t seq_len, uint32_t world_size, uint32_t rank, uint32_t interleave) {
  const int64_t round = static_cast<int64_t>(world_size) * interleave;
  const int64_t rest = seq_len % round - static_cast<int64_t>(rank) * interleave;
  return interleave * (seq_len / round) + std::clamp<int64_t>(rest, 0, interleave);
}

int64_t position_of_key(const RowRules& rules, int64_t key) {
  const int64_t interleave = rules.cp_interleave;
  return ((key / interleave) * rules.cp_world_size + rules.cp_rank) * interleave + key % interleave;
}

bool sees(const RowRules& rules, int64_t position, int64_t key_position) {
  if (rules.sparse &&
      std::find(rules.sparse_indices.begin(), rules.sparse_indices.end(), key_position) == rules.sparse_indices.end()) {
    return false;
  }
  if (in_one_range(rules.mm_ranges, position, key_position)) return true;
  if (rules.window_left >= 0 && key_position < position - rules.window_left) return false;
  if (rules.chunk_size > 0) {
    return key_position <= position && key_position / rules.chunk_size == position / rules.chunk_size;
  }
  if (rules.causal) return key_position <= position;
  return rules.window_right < 0 || key_position <= position + rules.window_right;
}

void append_empty_row(const HeadShape& shape, Reference* into) {
  const size_t heads = static_cast<size_t>(shape.num_q_heads);
  const size_t values = heads * static_cast<size_t>(shape.head_size_v);
  into->exact.insert(into->exact.end(), values, 0.0);
  into->naive.insert(into->naive.end(), values, 0.0);
  into->exact_lse.insert(into->exact_lse.end(), heads, -kInfinity);
  into->naive_lse.insert(into->naive_lse.end(), heads, -kInfinity);
}

void attend_row(const HeadShape& shape, const RowRules& rules, int64_t position, int64_t num_keys, const float* q,
                const KeyReader& keys, uint32_t q_dtype, Reference* into) {
  Row row;
  for (int64_t key = 0; key < num_keys; ++key) {
    const int64_t key_position = position_of_key(rules, key);
    if (!sees(rules, position, key_position)) continue;
    row.keys.push_back(key);
    row.positions.push_back(key_position);
  }
  const size_t heads = static_cast<size_t>(shape.num_q_heads);
  const size_t count = row.keys.size();
  row.exact.resize(heads * count);
  row.naive.resize(heads * count);
  score(shape, q, keys, &row);

  const size_t out_at = into->exact.size();
  const size_t lse_at = into->exact_lse.size();
  append_empty_row(shape, into);
  for (size_t h = 0; h < heads; ++h) {
    const std::span<double> exact(row.exact.data() + h * count, count);
    const std::span<float> naive(row.naive.data() + h * count, count);
    const float* sink = rules.sinks.empty() ? nullptr : &rules.sinks[h];
    finish_scores(rules, position, static_cast<int>(h), q_dtype == kCodes ? ANYATTN_DTYPE_BFLOAT16 : q_dtype, exact, naive,
                  row);
    for (double value : exact) into->max_score = std::max(into->max_score, std::fabs(value));
    if (sink) into->max_score = std::max(into->max_score, std::fabs(static_cast<double>(*sink)));
    into->exact_lse[lse_at + h] = softmax(exact, sink);
    into->naive_lse[lse_at + h] = softmax(naive, sink);
    if (q_dtype == kCodes) round_to_codes(naive);
    for (float& value : naive) value = rounded(q_dtype, value);
  }
  std::vector<float> naive_out(heads * static_cast<size_t>(shape.head_size_v), 0.0f);
  accumulate(shape, keys, row, into->exact.data() + out_at, naive_out.data(), &into->max_value);
  std::copy(naive_out.begin(), naive_out.end(), into->naive.begin() + static_cast<ptrdiff_t>(out_at));
}

void merge_exact(std::span<const State> states, size_t head_size, std::vector<double>* out, std::vector<double>* lse) {
  const size_t rows = states.empty() ? 0 : states[0].lse.size();
  out->assign(rows * head_size, 0.0);
  lse->assign(rows, -kInfinity);
  for (size_t row = 0; row < rows; ++row) {
    double top = -kInfinity;
    for (const State& state : states) {
      if (state.lse[row] < kInfinity) top = std::max(top, state.lse[row]);
    }
    const auto is_nan = [&](const State& state) { return std::isnan(state.lse[row]); };
    if (top == -kInfinity && std::none_of(states.begin(), states.end(), is_nan)) continue;
    double sum = 0.0;
    for (const State& state : states) {
      if (std::isinf(state.lse[row])) continue;  // NaN is no empty part
      const double weight = std::exp(state.lse[row] - top);
      sum += weight;
      for (size_t d = 0; d < head_size; ++d) (*out)[row * head_size + d] += weight * state.out[row * head_size + d];
    }
    for (size_t d = 0; d < head_size; ++d) (*out)[row * head_size + d] /= sum;
    (*lse)[row] = top + std::log(sum);
  }
}

Reference merge_parts(std::span<const Reference> parts, size_t head_size, uint32_t out_dtype) {
  Reference merged;
  std::vector<std::vector<double>> rounded_outs;
  std::vector<State> exact, naive;
  for (const Reference& part : parts) {
    std::vector<double>& stored = rounded_outs.emplace_back(part.naive);
    for (double& value : stored) value = rounded(out_dtype, static_cast<float>(value));
    exact.push_back({part.exact, part.exact_lse});
    merged.max_score = std::max(merged.max_score, part.max_score);
    merged.max_value = std::max(merged.max_value, part.max_value);
  }
  for (size_t i = 0; i < parts.size(); ++i) naive.push_back({rounded_outs[i], parts[i].naive_lse});
  merge_exact(exact, head_size, &merged.exact, &merged.exact_lse);
  merge_exact(naive, head_size, &merged.naive, &merged.naive_lse);
  return merged;
}

Figures figures_of(std::span<const double> out, std::span<const double> lse) {
  Figures figures;
  for (size_t i = 0; i < out.size(); ++i) {
    figures.sum += out[i];
    figures.sum_of_abs += std::fabs(out[i]);
    figures.weighted += (static_cast<double>(i % 7) - 3.0) * out[i];
  }
  for (double value : lse) {
    if (!std::isfinite(value)) continue;
    figures.sum_of_lse += value;
    ++figures.count_of_lse;
  }
  return figures;
}

}  // namespace anyattn::conformance
