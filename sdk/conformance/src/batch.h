// SPDX-License-Identifier: Apache-2.0
// The arrays of one anyattn_batch, each in a guarded block of its exact size. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_BATCH_H
#define ANYATTN_CONFORMANCE_BATCH_H

#include <vector>

#include "anyattn/attention.h"
#include "anyattn/conformance/case.h"
#include "memory.h"

namespace anyattn::conformance {

// An entry no backend may follow: its address lies outside the machine.
constexpr int32_t kForbiddenBlock = 1 << 30;

class Batch {
 public:
  // Lengths, causality and mm ranges of the case; maxima are exact, or the limits' own where `loose`.
  Batch(const Case& c, const anyattn_limits& limits, bool loose, bool host_lengths);
  // rows[r]: blocks of request r; the rest of each row is kForbiddenBlock.
  void set_table(const std::vector<std::vector<int64_t>>& rows, const anyattn_limits& limits);
  // Ragged keys.
  void set_key_starts();
  // A hole: entry `block` of request r becomes -1.
  void punch(size_t request, size_t block);

  const anyattn_batch& get() const { return batch_; }
  void check() const;

 private:
  std::vector<int32_t> key_lens_;
  Block query_start_loc_, seq_lens_, table_, key_start_loc_, causal_, mm_start_, mm_ranges_;
  Block query_start_loc_host_, seq_lens_host_;
  anyattn_batch batch_{};
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_BATCH_H
