// SPDX-License-Identifier: Apache-2.0
#include "worklist.h"

#include "anyattn/call_checks.hpp"

namespace anyattn::portable {
namespace {

constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;

Lane carve_lane(Carver& carver, const Tile& tile, const anyattn_limits& limits) {
  const uint64_t items = limits.max_num_tokens / static_cast<uint32_t>(tile.tokens) + uint64_t{limits.max_num_reqs};
  Lane lane{};
  lane.team = team_of(tile);
  lane.teams = tile.slots / lane.team;
  lane.places = carver.take<Place>(static_cast<uint64_t>(lane.teams) + 1);
  lane.items = carver.take<Item>(items);
  lane.prefix = carver.take<int64_t>(items + 1);
  lane.order = carver.take<int32_t>(items);
  lane.first_item = carver.take<int32_t>(uint64_t{limits.max_num_reqs} + 1);
  return lane;
}

}  // namespace

uint64_t Worklist::persistent_bytes(const Plan& plan, const anyattn_limits& limits) {
  Carver carver(nullptr);
  carver.take<BatchView>(1);
  for (int i = 0; i < plan.main.num_lanes; ++i) carve_lane(carver, plan.main.lanes[i], limits);
  return carver.used();
}

Worklist::Worklist(const Plan& plan, Kernels& kernels, const anyattn_limits& limits, uint32_t mode, void* persistent)
    : plan_(plan), kernels_(kernels), limits_(limits), mode_(mode) {
  if (mode > ANYATTN_METADATA_GRAPH_CAPTURE) throw Error(kWrong, "metadata mode ", mode, "; allowed: 0, 1, 2");
  if (mode == ANYATTN_METADATA_GRAPH_CAPTURE && kTargetDevice == ANYATTN_DEVICE_CPU)
    throw Error(ANYATTN_UNSUPPORTED,
                "metadata mode 2 (graph capture); allowed: 0 (normal), 1 (fast): the CPU captures no graphs");
  if (!persistent) throw Error(kWrong, "persistent is null; needed: ", persistent_bytes(plan, limits), " bytes");
  kernels.widen(lanes_for(plan.main, limits.max_query_len));
  Carver carver(persistent);
  kept_ = carver.take<BatchView>(1);
  for (int i = 0; i < plan.main.num_lanes; ++i) lanes_[i] = carve_lane(carver, plan.main.lanes[i], limits);
}

int64_t Worklist::ready_tokens() const {
  if (!ready_) throw Error(kWrong, "the metadata holds no batch; needed: metadata_update before the call");
  return batch_.num_tokens;
}

void Worklist::update(const anyattn_batch& batch, void* stream) {
  ready_ = false;
  check_batch(batch, limits_,
              {plan_.ragged, plan_.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL), plan_.has(ANYATTN_FEATURE_MM_PREFIX)});
  batch_ = batch;
  const uint32_t longest = mode_ == ANYATTN_METADATA_GRAPH_CAPTURE ? limits_.max_query_len : batch.max_query_len;
  lanes_in_use_ = lanes_for(plan_.main, longest);
  PlanArgs args{};
  args.batch = {batch.query_start_loc,
                batch.seq_lens,
                batch.block_table,
                batch.key_start_loc,
                batch.causal,
                batch.mm_prefix_start_loc,
                batch.mm_prefix_ranges,
                batch.block_table_stride,
                static_cast<int32_t>(batch.num_reqs),
                static_cast<int32_t>(batch.num_tokens)};
  for (int i = 0; i < lanes_in_use_; ++i) {
    args.kept = i == 0 ? kept_ : nullptr;
    args.lane = lanes_[i];
    kernels_.plan(i, args, stream);
  }
  ready_ = true;
}

void Worklist::update_block_table(const Worklist& from, const int32_t* block_table, int64_t block_table_stride, void* stream) {
  if (!from.ready_) throw Error(kWrong, "the other metadata holds no batch");
  if (!block_table && !plan_.ragged) throw Error(kWrong, "block_table is null");
  anyattn_batch batch = from.batch_;
  batch.block_table = block_table;
  batch.block_table_stride = block_table_stride;
  update(batch, stream);
}

}  // namespace anyattn::portable
