// SPDX-License-Identifier: Apache-2.0
// A step's metadata: the persistent block cut into the lanes' parts, and the launches that rewrite them. Reads no length on the host.
// Included by attn.h.
#pragma once

#include <atomic>

#include "anyattn/attention.h"
#include "plan.h"

namespace anyattn::flash {

class StepMetadata {
 public:
  StepMetadata(const Plan& plan, const anyattn_limits& limits, uint32_t mode, void* persistent);

  static uint64_t persistent_bytes(const Plan& plan, const anyattn_limits& limits);

  void update(const anyattn_batch& batch, void* stream);
  void update_block_table(const StepMetadata& from, const int32_t* block_table, int64_t block_table_stride, void* stream);

  // num_tokens of the batch; throws before the first good update.
  int64_t ready_tokens() const;
  uint64_t scratch_bytes() const { return scratch_bytes_; }
  // Queues the lanes that this batch may need: one of short queries leaves the second out.
  void forward(Forward call, void* stream) const;

 private:
  int counter_set(void* scratch) const;

  const Plan& plan_;
  anyattn_limits limits_;
  uint32_t mode_;
  Batch* kept_ = nullptr;
  Lane lanes_[kMaxLanes];
  char* parts_[kMaxLanes] = {};  // of the persistent block
  uint64_t scratch_offset_[kMaxLanes] = {};
  uint64_t scratch_bytes_ = 0;
  mutable std::atomic<void*> scratches_[kCounterSets] = {};  // the blocks that calls have brought: Forward::counter_set
  anyattn_batch batch_{};
  int lanes_in_use_ = 0;
  bool ready_ = false;
};

// Bytes of one call's scratch: the lanes' parts one behind the other.
uint64_t scratch_bytes(const Plan& plan, const anyattn_limits& limits);

}  // namespace anyattn::flash
