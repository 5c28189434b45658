// SPDX-License-Identifier: Apache-2.0
#include "metadata.h"

#include <algorithm>

#include "anyattn/call_checks.hpp"
#include "cascade.h"

namespace anyattn::flash {
namespace {

constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;

uint64_t rounded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

Memory lane_memory(const Plan& plan, int i, const anyattn_limits& limits) {
  return plan.families[i]->memory(plan.lane(i, limits_of(limits)));
}

// Some batch within the limits may gain: more requests and more keys only help.
bool cascade_fits(const Plan& plan, const anyattn_limits& limits) {
  if (!plan.cascade) return false;
  const auto requests = static_cast<int>(std::min(limits.max_num_reqs, limits.max_num_tokens));
  const auto keys = static_cast<int>(limits.max_seq_len);
  if (plan.always_cascade) return keys >= kSharedStep;
  return cascade_model(plan.device, plan.problem).pays(requests, requests, keys);
}

uint64_t lse_bytes(const Plan& plan, const anyattn_limits& limits) {
  return uint64_t{limits.max_num_tokens} * static_cast<uint64_t>(plan.problem.num_q_heads) * sizeof(float);
}

Memory cascade_memory(const Plan& plan, const anyattn_limits& limits) {
  return plan.cascade->memory(plan.cascade_lane(limits_of(limits)));
}

}  // namespace

uint64_t scratch_bytes(const Plan& plan, const anyattn_limits& limits) {
  uint64_t bytes = 0;
  for (int i = 0; i < plan.num_lanes; ++i) bytes += rounded(lane_memory(plan, i, limits).scratch_bytes);
  if (cascade_fits(plan, limits))
    bytes += rounded(cascade_memory(plan, limits).scratch_bytes) + rounded(lse_bytes(plan, limits));
  return bytes;
}

uint64_t StepMetadata::persistent_bytes(const Plan& plan, const anyattn_limits& limits) {
  uint64_t bytes = rounded(sizeof(Batch));
  for (int i = 0; i < plan.num_lanes; ++i) bytes += rounded(lane_memory(plan, i, limits).persistent_bytes);
  if (cascade_fits(plan, limits))
    bytes += rounded(sizeof(SharedPrefix)) + rounded(cascade_memory(plan, limits).persistent_bytes);
  return bytes;
}

StepMetadata::StepMetadata(const Plan& plan, const anyattn_limits& limits, uint32_t mode, void* persistent)
    : plan_(plan), limits_(limits), mode_(mode), cascade_fits_(cascade_fits(plan, limits)) {
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
  if (!cascade_fits_) return;
  const Memory memory = cascade_memory(plan, limits);
  cascade_lane_ = plan.cascade_lane(limits_of(limits));
  shared_ = carver.take<SharedPrefix>(1);
  cascade_part_ = carver.take<char>(memory.persistent_bytes);
  cascade_offset_ = scratch_bytes_;
  lse_offset_ = cascade_offset_ + rounded(memory.scratch_bytes);
  scratch_bytes_ = lse_offset_ + rounded(lse_bytes(plan, limits));
}

// By the counts, with the fewest rows that the requests may have: the device knows the lengths and decides again.
bool StepMetadata::wants_cascade(const anyattn_batch& batch) {
  if (!cascade_fits_) return false;
  if (mode_ == ANYATTN_METADATA_GRAPH_CAPTURE && cascade_ != Cascade::kUndecided) return cascade_ == Cascade::kOn;
  const auto requests = static_cast<int>(batch.num_reqs);
  const auto keys = static_cast<int>(std::min(batch.shared_prefix_len, batch.max_seq_len));
  const CascadeModel model = cascade_model(plan_.device, plan_.problem);
  const bool wanted = plan_.always_cascade ? keys >= kSharedStep : model.pays(requests, requests, keys);
  cascade_ = wanted ? Cascade::kOn : Cascade::kOff;
  return wanted;
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
              static_cast<int32_t>(batch.num_tokens),
              nullptr};
  to.kept = kept_;
  if (wants_cascade(batch)) {
    to.persistent = cascade_part_;
    to.shared = shared_;
    to.shared_prefix = static_cast<int>(std::min(batch.shared_prefix_len, batch.max_seq_len));
    to.always = plan_.always_cascade;
    plan_.cascade->update(cascade_lane_, to, stream);
    to.batch.shared = shared_;
  }
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
  const bool cascade = cascade_ == Cascade::kOn;
  if (cascade && !call.lse) {  // the pass joins by it
    call.lse = reinterpret_cast<float*>(scratch + lse_offset_);
    call.lse_token_stride = plan_.problem.num_q_heads;
    call.lse_head_stride = 1;
    call.lse_factor = 1;
  }
  for (int i = 0; i < lanes_in_use_; ++i) {
    call.persistent = parts_[i];
    call.scratch = scratch + scratch_offset_[i];
    plan_.families[i]->forward(lanes_[i], call, stream);
  }
  if (!cascade) return;
  call.persistent = cascade_part_;
  call.scratch = scratch + cascade_offset_;
  plan_.cascade->forward(cascade_lane_, call, stream);
}

}  // namespace anyattn::flash
