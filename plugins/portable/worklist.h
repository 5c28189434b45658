// SPDX-License-Identifier: Apache-2.0
// A step's metadata: the persistent block cut into the lanes' lists, and the launch that rewrites them. Included by both backends.
// Reads no length on the host: the arrays of a batch are the device's.
#pragma once

#include "anyattn/attention.h"
#include "plan.h"

namespace anyattn::portable {

class Worklist {
 public:
  Worklist(const Plan& plan, Kernels& kernels, const anyattn_limits& limits, uint32_t mode, void* persistent);

  static uint64_t persistent_bytes(const Plan& plan, const anyattn_limits& limits);

  void update(const anyattn_batch& batch, void* stream);
  void update_block_table(const Worklist& from, const int32_t* block_table, int64_t block_table_stride, void* stream);

  // num_tokens of the batch; throws before the first good update.
  int64_t ready_tokens() const;
  const anyattn_batch& batch() const { return batch_; }
  const BatchView* kept() const { return kept_; }
  // Lanes that a launch needs: a batch of short queries leaves the second one out.
  int lanes_in_use() const { return lanes_in_use_; }
  const Lane& lane(int i) const { return lanes_[i]; }

 private:
  const Plan& plan_;
  const Kernels& kernels_;
  anyattn_limits limits_;
  uint32_t mode_;
  BatchView* kept_ = nullptr;
  Lane lanes_[kMaxLanes] = {};
  anyattn_batch batch_{};
  int lanes_in_use_ = 0;
  bool ready_ = false;
};

}  // namespace anyattn::portable
