// SPDX-License-Identifier: Apache-2.0
// Which rows of a step are recomputed, and what came of it. Included by run and its tests. Computes nothing itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serving/model_kinds.h"
#include "serving/step_batch.h"

namespace anyattn::tools {

// One token of one layer.
struct ChosenRow {
  uint32_t layer = 0;
  uint32_t token = 0;          // in the step's order
  bool cached_prefix = false;  // its request began with tokens found in the cache
  bool window_edge = false;    // a window hides keys from it
};

struct CheckTally {
  uint64_t rows = 0;
  uint64_t cached_prefix_rows = 0;
  uint64_t window_edge_rows = 0;
  double worst_error_over_bound = 0;
  uint64_t rows_outside = 0;
  std::string first_failure;  // of a row outside its bound

  void add(const ChosenRow& row, double error_over_bound, const std::string& failure);
};

// A step always gives one row a kind, and more while the whole run lags behind kRowsWanted. Rows that bugs like are preferred:
// the first token behind a cached prefix, and the tokens at which a window begins to hide keys.
class RowChooser {
 public:
  static constexpr uint64_t kRowsWanted = 1000;
  static constexpr uint32_t kMostRowsAStep = 8;  // of a kind

  explicit RowChooser(uint64_t seed) : seed_(seed) {}

  // progress: share of the run's tokens that are computed once this step is, in (0, 1]. rows_so_far: of all kinds.
  const std::vector<ChosenRow>& choose(const KindSpec& spec, const StepBatch& batch, uint64_t step, double progress,
                                       uint64_t rows_so_far);

 private:
  void add(const KindSpec& spec, const StepBatch& batch, uint32_t token);

  uint64_t seed_;
  uint64_t draws_ = 0;
  std::vector<ChosenRow> rows_;
};

}  // namespace anyattn::tools
