// SPDX-License-Identifier: Apache-2.0
#include "serving/row_checks.h"

#include <algorithm>

#include "serving/draw.h"

namespace anyattn::tools {
namespace {

constexpr uint32_t kNoToken = UINT32_MAX;

// The first computed token behind a prefix found in the cache, of the first such row in this step.
uint32_t behind_cached_prefix(const StepBatch& batch) {
  for (size_t r = 0; r < batch.rows().size(); ++r) {
    const StepRow& row = batch.rows()[r];
    if (row.request->cached > 0 && row.start == row.request->cached) return batch.first_token(r);
  }
  return kNoToken;
}

// A token at the position where the window hides its first key, or at the last one that still sees all.
uint32_t at_window_edge(const KindSpec& spec, const StepBatch& batch, uint64_t draw) {
  const int32_t left = spec.keys_to_the_left();
  if (left < 0) return kNoToken;
  const uint32_t edge = static_cast<uint32_t>(left) + 1 - static_cast<uint32_t>(draw % 2);
  for (size_t r = 0; r < batch.rows().size(); ++r) {
    const StepRow& row = batch.rows()[r];
    if (row.start <= edge && edge < row.start + row.count) return batch.first_token(r) + (edge - row.start);
  }
  return kNoToken;
}

}  // namespace

void CheckTally::add(const ChosenRow& row, double error_over_bound, const std::string& failure) {
  ++rows;
  cached_prefix_rows += row.cached_prefix;
  window_edge_rows += row.window_edge;
  worst_error_over_bound = std::max(worst_error_over_bound, error_over_bound);
  if (failure.empty()) return;
  ++rows_outside;
  if (first_failure.empty()) first_failure = failure;
}

const std::vector<ChosenRow>& RowChooser::choose(const KindSpec& spec, const StepBatch& batch, uint64_t step, double progress,
                                                 uint64_t rows_so_far) {
  rows_.clear();
  const auto due = static_cast<uint64_t>(static_cast<double>(kRowsWanted) * std::min(progress, 1.0));
  const uint64_t missing = due > rows_so_far ? due - rows_so_far : 0;
  const uint64_t wanted = std::clamp<uint64_t>(missing, 1, std::min(kMostRowsAStep, batch.num_tokens()));
  for (const uint32_t token : {behind_cached_prefix(batch), at_window_edge(spec, batch, step)}) {
    if (token != kNoToken) add(spec, batch, token);
  }
  // Half of the other rows come from a request drawn first, so that decodes are seen beside long prefills.
  while (rows_.size() < wanted) {
    const uint64_t draw = mix({seed_, 4, spec.index, step, draws_++});
    uint32_t token = static_cast<uint32_t>(draw % batch.num_tokens());
    if (draw >> 63) {
      const size_t r = (draw >> 8) % batch.rows().size();
      token = batch.first_token(r) + static_cast<uint32_t>((draw >> 32) % batch.rows()[r].count);
    }
    add(spec, batch, token);
  }
  return rows_;
}

void RowChooser::add(const KindSpec& spec, const StepBatch& batch, uint32_t token) {
  const StepRow& row = batch.rows()[batch.row_of_token()[token]];
  const uint32_t position = batch.positions()[token];
  const auto layer = static_cast<uint32_t>(mix({seed_, 5, draws_++}) % spec.num_layers);
  rows_.push_back({layer, token, row.request->cached > 0, spec.visible_keys(position) <= position});
}

}  // namespace anyattn::tools
