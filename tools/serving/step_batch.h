// SPDX-License-Identifier: Apache-2.0
// One step's rows as the arrays that layers need: ordered, split, with tables and slots of every group.
// Included by run and the layers. Draws no value and calls no backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anyattn/kv_pool.h"
#include "anyattn/step.h"
#include "serving/device_buffer.h"
#include "serving/scheduler.h"

namespace anyattn::tools {

// What all kinds of layers of the run agree on.
struct StepLimits {
  uint32_t max_num_reqs = 0;
  uint32_t max_num_tokens = 0;
  uint32_t decode_threshold = 1;  // the smallest of the groups
  uint32_t query_lengths = 3;     // likewise: ANYATTN_QUERY_* are ordered by what they take
};

class StepBatch {
 public:
  // Arrays for `limits` and the groups of `pool`; both outlive this.
  StepBatch(const Place& place, const anyattn_kv_pool* pool, uint32_t num_groups, const StepLimits& limits);

  // Rows of this step in their new order. Uploads everything; waits for nothing.
  void build(const std::vector<StepRow>& rows);

  const std::vector<StepRow>& rows() const { return rows_; }
  const anyattn_step_split& split() const { return split_; }
  uint32_t num_tokens() const { return num_tokens_; }
  uint32_t first_token(size_t row) const { return static_cast<uint32_t>(query_start_loc_.host<int32_t>()[row]); }
  // Row that token t belongs to; positions and ids of all tokens, in order.
  std::span<const uint32_t> row_of_token() const { return row_of_token_; }
  std::span<const uint32_t> positions() const { return positions_; }
  std::span<const int32_t> token_ids() const { return token_ids_; }
  // Host and device views of what MLA's prefill needs: query offsets of the prefill part from 0.
  const DeviceBuffer& prefill_query_start_loc() const { return prefill_query_start_loc_; }
  std::span<const int32_t> prefill_context_lens() const { return prefill_context_lens_; }

  // The batch of one group, whole or a part of it (ANYATTN_PHASE_*).
  anyattn_batch batch(uint32_t group, uint32_t part) const;
  // Slots of rows [num_tokens, rows) become -1: what a captured graph of more rows stores nothing for.
  void pad_slots(uint32_t rows);
  // The whole batch with `rows` >= num_tokens rows as a captured graph reads it: no host copy, maxima that `limits` allow.
  anyattn_batch padded_batch(uint32_t group, uint32_t rows, const anyattn_limits& limits) const;
  uint32_t max_query_len() const;
  // [num_tokens] i64 of one group.
  int64_t* slots(uint32_t group) const { return groups_[group].slots.device<int64_t>(); }

 private:
  struct GroupArrays {
    DeviceBuffer table;
    DeviceBuffer slots;
    int64_t stride = 0;
  };

  void order(const std::vector<StepRow>& rows);
  void describe_tokens();
  void fill_group(uint32_t group);

  const anyattn_kv_pool* pool_;
  StepLimits limits_;
  std::vector<StepRow> rows_;
  std::vector<int32_t> query_lens_;
  std::vector<uint32_t> order_;
  std::vector<uint64_t> requests_;
  std::vector<uint32_t> row_of_token_;
  std::vector<uint32_t> positions_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> prefill_context_lens_;
  anyattn_step_split split_{};
  uint32_t num_tokens_ = 0;
  DeviceBuffer query_start_loc_;
  DeviceBuffer prefill_query_start_loc_;
  DeviceBuffer seq_lens_;
  std::vector<GroupArrays> groups_;
};

}  // namespace anyattn::tools
