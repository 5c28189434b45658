// SPDX-License-Identifier: Apache-2.0
// What a step's batch becomes: which keys each row sees, and the list of units that forward walks.
// Included by both backends. Owns no memory: the list lies in the metadata's persistent block.
#pragma once

#include <cstdint>

#include "anyattn/attention.h"
#include "plan.h"

namespace anyattn::cpu {

// Keys [begin, end); empty where begin >= end.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

// One unit without its heads; a split where num_splits > 1.
struct WorkUnit {
  uint32_t req;
  uint32_t first_token;  // row of the request
  uint32_t tokens;
  int32_t key_begin;  // local keys
  int32_t key_end;
  uint32_t split;
  uint32_t num_splits;
  uint32_t first_part;  // of the item's parts, for its first head unit
  uint32_t split_item;  // counts items that are split
};

// Number of a shard's keys among the first `length` positions.
int64_t local_count(const Shard& shard, int64_t length);

class Worklist {
 public:
  Worklist(const Plan& plan, const anyattn_limits& limits, uint32_t mode, void* persistent);

  // Units for any batch within the limits, times sizeof(WorkUnit).
  static uint64_t persistent_bytes(const Plan& plan, const anyattn_limits& limits);

  // Rewrites the list. Throws INVALID_ARGUMENT where the batch breaks its contract or the limits.
  void update(const anyattn_batch& batch, void* stream);
  void update_block_table(const Worklist& from, const int32_t* block_table, int64_t block_table_stride, void* stream);

  const anyattn_batch& batch() const { return batch_; }
  // False before the first update and after one that failed.
  bool ready() const { return ready_; }
  // Keys that a row of the block table can name.
  int64_t table_room() const { return int64_t{limits_.max_blocks_per_req} * plan_.block_size; }
  uint32_t num_units() const { return num_units_; }
  uint32_t num_split_items() const { return num_split_items_; }
  const WorkUnit& unit(uint32_t i) const { return units_[i]; }

  int64_t query_len(uint32_t req) const { return batch_.query_start_loc[req + 1] - batch_.query_start_loc[req]; }
  // Position of the request's row `token`.
  int64_t position(uint32_t req, int64_t token) const { return batch_.seq_lens[req] - query_len(req) + token; }
  // Local keys that row sees: one interval always (attention.h: causality, window and ranges all hold the own position).
  Interval visible(uint32_t req, int64_t token) const;

 private:
  void check(const anyattn_batch& batch) const;
  Interval visible_to_unit(uint32_t req, uint32_t first_token, uint32_t tokens) const;
  uint32_t splits_of(int64_t keys, uint32_t tokens, int64_t total_cost) const;

  const Plan& plan_;
  anyattn_limits limits_;
  anyattn_batch batch_{};
  WorkUnit* units_;
  uint32_t capacity_;
  bool ready_ = false;
  uint32_t num_units_ = 0;
  uint32_t num_split_items_ = 0;
};

}  // namespace anyattn::cpu
