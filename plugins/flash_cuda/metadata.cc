// SPDX-License-Identifier: Apache-2.0
#include "metadata.h"

#include "anyattn/call_checks.hpp"

namespace anyattn::flash {
namespace {

constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;

uint64_t rounded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

Memory lane_memory(const Plan& plan, int i, const anyattn_limits& limits) {
  return plan.families[i]->memory(plan.lane(i, limits_of(limits)));
}

}  // namespace

uint64_t scratch_bytes(const Plan& plan, const anyattn_limits& limits) {
  uint64_t bytes = 0;
  for (int i = 0; i < plan.num_lanes; ++i) bytes += rounded(lane_memory(plan, i, limits).scratch_bytes);
  return bytes;
}

uint64_t StepMetadata::persistent_bytes(const Plan& plan, const anyattn_limits& limits) {
  uint64_t bytes = rounded(sizeof(Batch));
  for (int i = 0; i < plan.num_lanes; ++i) bytes += rounded(lane_memory(plan, i, limits).persistent_bytes);
  return bytes;
}

StepMetadata::StepMetadata(const Plan& plan, const anyattn_limits& limits, uint32_t mode, void* persistent)
    : plan_(plan), limits_(limits), mode_(mode) {
  if (mode > ANYATTN_METADATA_GRAPH_CAPTURE) throw Error(kWrong, "metadata mode ", mode, "; allowed: 0, 1, 2");
  if (!persistent) throw Error(kWrong, "persistent is null; needed: ", persistent_bytes(plan, limits), " bytes");
  Carver carver(persistent);
  kept_ = carver.take<Batch>(1);
  for (int i = 0; i < plan.num_lanes; ++i) {
    const Memory memory = lane_memory(plan, i, limits);
    lanes_[i] = plan.lane(i, limits_of(limits));
    parts_[i] = carver.take<char>(memory.persistent_bytes);
    scratch_offset_[i] = scratch_bytes_;
    scratch_bytes_ += rounded(memory.scratch_bytes);
  }
}

int64_t StepMetadata::ready_tokens() const {
  if (!ready_) throw Error(kWrong, "the metadata holds no batch; needed: metadata_update before the call");
  return batch_.num_tokens;
}

void StepMetadata::update(const anyattn_batch& batch, void* stream) {
  ready_ = false;
  check_batch(batch, limits_, {plan_.ragged, plan_.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL), false});
  batch_ = batch;
  const uint32_t longest = mode_ == ANYATTN_METADATA_GRAPH_CAPTURE ? limits_.max_query_len : batch.max_query_len;
  lanes_in_use_ = longest <= static_cast<uint32_t>(plan_.longest[0]) ? 1 : plan_.num_lanes;
  Update to{};
  to.batch = {batch.query_start_loc,
              batch.seq_lens,
              batch.block_table,
              batch.key_start_loc,
              batch.causal,
              batch.block_table_stride,
              static_cast<int32_t>(batch.num_reqs),
              static_cast<int32_t>(batch.num_tokens)};
  to.kept = kept_;
  for (int i = 0; i < lanes_in_use_; ++i) {
    to.persistent = parts_[i];
    plan_.families[i]->update(lanes_[i], to, stream);
  }
  ready_ = true;
}

void StepMetadata::update_block_table(const StepMetadata& from, const int32_t* block_table, int64_t block_table_stride,
                                      void* stream) {
  if (!from.ready_) throw Error(kWrong, "the other metadata holds no batch");
  if (!block_table && !plan_.ragged) throw Error(kWrong, "block_table is null");
  anyattn_batch batch = from.batch_;
  batch.block_table = block_table;
  batch.block_table_stride = block_table_stride;
  update(batch, stream);
}

// Scratch is one block a stream: a number a block, without a lock.
int StepMetadata::counter_set(void* scratch) const {
  for (int i = 0; i < kCounterSets; ++i) {
    void* held = scratches_[i].load(std::memory_order_relaxed);
    if (!held && scratches_[i].compare_exchange_strong(held, scratch, std::memory_order_relaxed)) return i;
    if (held == scratch) return i;
  }
  return -1;
}

void StepMetadata::forward(Forward call, void* stream) const {
  auto* scratch = static_cast<char*>(call.scratch);
  call.kept = kept_;
  call.counter_set = counter_set(call.scratch);
  for (int i = 0; i < lanes_in_use_; ++i) {
    call.persistent = parts_[i];
    call.scratch = scratch + scratch_offset_[i];
    plan_.families[i]->forward(lanes_[i], call, stream);
  }
}

}  // namespace anyattn::flash
