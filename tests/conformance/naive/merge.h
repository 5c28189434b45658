// SPDX-License-Identifier: Apache-2.0
// merge_states of both backends of the plugin.
#pragma once

#include "anyattn/tensor_view.hpp"
#include "row.h"

namespace naive {

inline const anyattn_state& state_at(const anyattn_merge_args& args, uint32_t i) {
  return *reinterpret_cast<const anyattn_state*>(reinterpret_cast<const std::byte*>(args.states) +
                                                 size_t{i} * args.state_stride);
}

inline float natural_lse(const anyattn_state& state, const anyattn::RawView<2>& lse, int64_t row, int64_t head) {
  const float value = load(ANYATTN_DTYPE_FLOAT32, lse.at(row, head));
  if (value == kInfinity) return -kInfinity;
  return state.lse_base == ANYATTN_LSE_BASE2 ? value * 0.69314718f : value;
}

inline void merge_states(const anyattn_merge_args& args) {
  using anyattn::kAnySize;
  if (args.num_states < 1 || !args.states)
    throw anyattn::Error(ANYATTN_INVALID_ARGUMENT, "merge_states wants at least one state");
  const auto out = anyattn::view<3>(args.out, {.name = "out", .shape = {kAnySize, kAnySize, kAnySize}});
  const auto lse =
      anyattn::optional_view<2>(args.lse, {.name = "lse", .dtype = ANYATTN_DTYPE_FLOAT32, .shape = {kAnySize, kAnySize}});
  for (int64_t row = 0; row < out.shape[0]; ++row) {
    for (int64_t head = 0; head < out.shape[1]; ++head) {
      float top = -kInfinity, sum = 0.0f, merged[kMaxHeadSize] = {};
      bool any = false;
      for (uint32_t i = 0; i < args.num_states; ++i) {
        const anyattn_state& state = state_at(args, i);
        const auto part_lse = anyattn::view<2>(state.lse, {.name = "state.lse", .shape = {kAnySize, kAnySize}});
        const float natural = natural_lse(state, part_lse, row, head);
        top = std::max(top, natural);
        any = any || natural != -kInfinity;
      }
      for (uint32_t i = 0; i < args.num_states && any; ++i) {
        const anyattn_state& state = state_at(args, i);
        const auto part = anyattn::view<3>(state.out, {.name = "state.out", .dtype = out.dtype, .shape = out.shape});
        const auto part_lse = anyattn::view<2>(state.lse, {.name = "state.lse", .shape = {kAnySize, kAnySize}});
        const float natural = natural_lse(state, part_lse, row, head);
        if (natural == -kInfinity) continue;
        const float weight = std::exp(natural - top);
        sum += weight;
        for (int64_t d = 0; d < out.shape[2]; ++d) merged[d] += weight * load(out.dtype, part.at(row, head, d));
      }
      for (int64_t d = 0; d < out.shape[2]; ++d) store(out.dtype, out.at(row, head, d), any ? merged[d] / sum : 0.0f);
      if (lse) store(ANYATTN_DTYPE_FLOAT32, lse.at(row, head), any ? in_base(top + std::log(sum), args.lse_base) : -kInfinity);
    }
  }
}

}  // namespace naive
