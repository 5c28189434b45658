// SPDX-License-Identifier: Apache-2.0
// One query row of one head: scores, softmax and P . V in float32, keys in three parts that are merged. Included by both
// backends of the plugin. Knows no cache and no batch: keys come from functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "anyattn/attention.h"
#include "anyattn/dtypes.hpp"
#include "mutation.h"

namespace naive {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int64_t kParts = 3;
inline constexpr int64_t kMaxHeadSize = 1024;  // the largest that fits the buffers on the stack

inline float load(uint32_t dtype, const std::byte* at) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) return *reinterpret_cast<const float*>(at);
  if (dtype == ANYATTN_DTYPE_FLOAT16) return anyattn::to_float(*reinterpret_cast<const anyattn::Float16*>(at));
  return anyattn::to_float(*reinterpret_cast<const anyattn::BFloat16*>(at));
}

inline void store(uint32_t dtype, std::byte* at, float value) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) *reinterpret_cast<float*>(at) = value;
  if (dtype == ANYATTN_DTYPE_FLOAT16) *reinterpret_cast<anyattn::Float16*>(at) = anyattn::from_float<anyattn::Float16>(value);
  if (dtype == ANYATTN_DTYPE_BFLOAT16)
    *reinterpret_cast<anyattn::BFloat16*>(at) = anyattn::from_float<anyattn::BFloat16>(value);
}

// `count` elements that stand stride_bytes apart.
inline void load_row(uint32_t dtype, const std::byte* at, int64_t stride_bytes, int64_t count, float* into) {
  for (int64_t d = 0; d < count; ++d) into[d] = load(dtype, at + d * stride_bytes);
}

inline float in_base(float natural, uint32_t base) {
  const bool base2 = base == ANYATTN_LSE_BASE2 || mutated(Mutation::kLseBase2);
  return base2 ? natural * 1.44269504f : natural;
}

// score(j): of key j, -inf where it is not seen. value(j, float* into): its value row. scores: room for num_keys floats.
// tail: keys behind the last one that stand in its block. Writes out [width], returns the natural lse.
template <class Score, class Value>
float attend(int64_t num_keys, int64_t width, const float* sink, Score&& score, Value&& value, int64_t tail, float* scores,
             float* out) {
  float top = -kInfinity, sum = 0.0f;
  bool nan = false;
  std::fill_n(out, width, 0.0f);
  float row[kMaxHeadSize];
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t begin = num_keys * part / kParts, end = num_keys * (part + 1) / kParts;
    const bool with_sink = sink && (part == 0 || mutated(Mutation::kSinkPerSplit));
    float part_top = with_sink ? *sink : -kInfinity;
    for (int64_t j = begin; j < end; ++j) {
      part_top = std::max(part_top, scores[j] = score(j));
      nan = nan || std::isnan(scores[j]);
    }
    if (part_top == -kInfinity) continue;
    const float new_top = std::max(top, part_top);
    const float keep = top == -kInfinity ? 0.0f : std::exp(top - new_top);
    sum *= keep;
    for (int64_t d = 0; d < width; ++d) out[d] *= keep;
    if (with_sink) sum += std::exp(*sink - new_top);
    for (int64_t j = begin; j < end; ++j) {
      if (scores[j] == -kInfinity) continue;
      const float weight = std::exp(scores[j] - new_top);
      sum += weight;
      value(j, row);
      for (int64_t d = 0; d < width; ++d) out[d] += weight * row[d];
    }
    top = new_top;
  }
  if (nan) {
    std::fill_n(out, width, std::numeric_limits<float>::quiet_NaN());
    return out[0];
  }
  if (top == -kInfinity) return top;
  if (mutated(Mutation::kTailOfLastBlock)) {
    for (int64_t j = num_keys; j < num_keys + tail; ++j) {
      value(j, row);
      for (int64_t d = 0; d < width; ++d) out[d] += 0.0f * row[d];
    }
  }
  for (int64_t d = 0; d < width; ++d) out[d] /= sum;
  return top + std::log(sum);
}

}  // namespace naive
