// SPDX-License-Identifier: Apache-2.0
// A step's metadata: the persistent block cut into the lanes' parts, and the launches that rewrite them. Reads no length on the host.
//
// A pass over a shared prefix is queued where the model says for the batch's counts that it may pay; whether it runs, and for which
// rows, is decided on the device by the lengths. In graph capture mode it is queued in every call or in none, as the model says of the
// metadata's first batch, so that captured calls stay right whatever later batches name, and graphs hold no empty launches where
// nothing is shared.
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
  bool wants_cascade(const anyattn_batch& batch);

  const Plan& plan_;
  anyattn_limits limits_;
  uint32_t mode_;
  Batch* kept_ = nullptr;
  Lane lanes_[kMaxLanes];
  char* parts_[kMaxLanes] = {};  // of the persistent block
  uint64_t scratch_offset_[kMaxLanes] = {};
  uint64_t scratch_bytes_ = 0;
  enum class Cascade { kUndecided, kOff, kOn };
  Cascade cascade_ = Cascade::kUndecided;  // of the last batch; in graph capture mode of all
  bool cascade_fits_ = false;              // some batch within the limits may gain
  Lane cascade_lane_{};
  SharedPrefix* shared_ = nullptr;
  char* cascade_part_ = nullptr;
  uint64_t cascade_offset_ = 0, lse_offset_ = 0;             // in scratch
  mutable std::atomic<void*> scratches_[kCounterSets] = {};  // the blocks that calls have brought: Forward::counter_set
  anyattn_batch batch_{};
  int lanes_in_use_ = 0;
  bool ready_ = false;
};

// Bytes of one call's scratch: the lanes' parts one behind the other, then the pass's and its log-sum-exp.
uint64_t scratch_bytes(const Plan& plan, const anyattn_limits& limits);

}  // namespace anyattn::flash
