// SPDX-License-Identifier: Apache-2.0
#include "serving/step_batch.h"

#include <algorithm>

namespace anyattn::tools {

StepBatch::StepBatch(const Place& place, const anyattn_kv_pool* pool, uint32_t num_groups, const StepLimits& limits)
    : pool_(pool),
      limits_(limits),
      query_start_loc_(place, (limits.max_num_reqs + 1) * sizeof(int32_t)),
      prefill_query_start_loc_(place, (limits.max_num_reqs + 1) * sizeof(int32_t)),
      seq_lens_(place, limits.max_num_reqs * sizeof(int32_t)) {
  for (uint32_t g = 0; g < num_groups; ++g) {
    GroupArrays arrays;
    arrays.stride = anyattn_kv_pool_max_blocks_per_req(pool, g);
    const size_t table_bytes = limits.max_num_reqs * static_cast<size_t>(arrays.stride) * sizeof(int32_t);
    arrays.table = DeviceBuffer(place, table_bytes);
    std::fill_n(arrays.table.host<char>(), arrays.table.bytes(), static_cast<char>(-1));
    arrays.slots = DeviceBuffer(place, limits.max_num_tokens * sizeof(int64_t));
    groups_.push_back(std::move(arrays));
  }
}

void StepBatch::build(const std::vector<StepRow>& rows) {
  order(rows);
  describe_tokens();
  for (uint32_t g = 0; g < groups_.size(); ++g) fill_group(g);
  query_start_loc_.upload((rows_.size() + 1) * sizeof(int32_t));
  prefill_query_start_loc_.upload((split_.num_prefill_reqs + 1) * sizeof(int32_t));
  seq_lens_.upload(rows_.size() * sizeof(int32_t));
}

void StepBatch::order(const std::vector<StepRow>& rows) {
  query_lens_.clear();
  query_lens_.reserve(rows.size());
  for (const StepRow& row : rows) query_lens_.push_back(static_cast<int32_t>(row.count));
  order_.resize(rows.size());
  split_.struct_size = ANYATTN_STEP_SPLIT_SIZE;
  anyattn::check(anyattn_step_order, query_lens_.data(), static_cast<uint32_t>(rows.size()), limits_.decode_threshold,
                 limits_.query_lengths, order_.data(), &split_);
  rows_.clear();
  rows_.reserve(rows.size());
  for (const uint32_t i : order_) rows_.push_back(rows[i]);
}

void StepBatch::describe_tokens() {
  requests_.clear();
  row_of_token_.clear();
  positions_.clear();
  token_ids_.clear();
  prefill_context_lens_.clear();
  int32_t* starts = query_start_loc_.host<int32_t>();
  int32_t* seq_lens = seq_lens_.host<int32_t>();
  starts[0] = 0;
  for (uint32_t r = 0; r < rows_.size(); ++r) {
    const StepRow& row = rows_[r];
    requests_.push_back(row.request->id);
    starts[r + 1] = starts[r] + static_cast<int32_t>(row.count);
    seq_lens[r] = static_cast<int32_t>(row.start + row.count);
    if (r >= split_.num_decode_reqs) prefill_context_lens_.push_back(static_cast<int32_t>(row.start));
    for (uint32_t p = row.start; p < row.start + row.count; ++p) {
      row_of_token_.push_back(r);
      positions_.push_back(p);
      token_ids_.push_back(row.request->content.token_id(p));
    }
  }
  num_tokens_ = static_cast<uint32_t>(positions_.size());
  anyattn_step_rebase(starts, split_.num_decode_reqs, split_.num_prefill_reqs, prefill_query_start_loc_.host<int32_t>());
}

void StepBatch::fill_group(uint32_t group) {
  const GroupArrays& arrays = groups_[group];
  anyattn::check(anyattn_kv_pool_block_table, pool_, group, requests_.data(), static_cast<uint32_t>(requests_.size()),
                 arrays.table.host<int32_t>(), arrays.stride);
  int64_t* slots = arrays.slots.host<int64_t>();
  for (const StepRow& row : rows_) {
    anyattn::check(anyattn_kv_pool_slot_mapping, pool_, group, row.request->id, row.start, row.count, slots);
    slots += row.count;
  }
  arrays.table.upload(rows_.size() * static_cast<size_t>(arrays.stride) * sizeof(int32_t));
  arrays.slots.upload(num_tokens_ * sizeof(int64_t));
}

void StepBatch::pad_slots(uint32_t rows) {
  for (const GroupArrays& arrays : groups_) {
    std::fill(arrays.slots.host<int64_t>() + num_tokens_, arrays.slots.host<int64_t>() + rows, int64_t{-1});
    arrays.slots.upload(rows * sizeof(int64_t));
  }
}

uint32_t StepBatch::max_query_len() const {
  uint32_t longest = 0;
  for (const StepRow& row : rows_) longest = std::max(longest, row.count);
  return longest;
}

anyattn_batch StepBatch::padded_batch(uint32_t group, uint32_t rows, const anyattn_limits& limits) const {
  anyattn_batch padded{};
  padded.struct_size = ANYATTN_BATCH_SIZE;
  padded.num_reqs = static_cast<uint32_t>(rows_.size());
  padded.num_tokens = rows;
  padded.max_query_len = limits.max_query_len;
  padded.max_seq_len = limits.max_seq_len;
  padded.query_start_loc = query_start_loc_.device<int32_t>();
  padded.seq_lens = seq_lens_.device<int32_t>();
  padded.block_table = groups_[group].table.device<int32_t>();
  padded.block_table_stride = groups_[group].stride;
  return padded;
}

anyattn_batch StepBatch::batch(uint32_t group, uint32_t part) const {
  anyattn_batch whole{};
  whole.struct_size = ANYATTN_BATCH_SIZE;
  whole.num_reqs = static_cast<uint32_t>(rows_.size());
  whole.num_tokens = num_tokens_;
  whole.max_query_len = max_query_len();
  for (const StepRow& row : rows_) whole.max_seq_len = std::max(whole.max_seq_len, row.start + row.count);
  whole.query_start_loc = query_start_loc_.device<int32_t>();
  whole.query_start_loc_host = query_start_loc_.host<int32_t>();
  whole.seq_lens = seq_lens_.device<int32_t>();
  whole.seq_lens_host = seq_lens_.host<int32_t>();
  whole.block_table = groups_[group].table.device<int32_t>();
  whole.block_table_stride = groups_[group].stride;
  anyattn_batch out{};
  out.struct_size = ANYATTN_BATCH_SIZE;
  anyattn::check(anyattn_step_slice, &whole, &split_, part, prefill_query_start_loc_.device<int32_t>(),
                 prefill_query_start_loc_.host<int32_t>(), &out);
  return out;
}

}  // namespace anyattn::tools
