// SPDX-License-Identifier: Apache-2.0
#include "worklist.h"

#include <algorithm>

#include "anyattn/call_checks.hpp"

namespace anyattn::cpu {
namespace {

constexpr int64_t kMinSplitKeys = 4 * kTileKeys;  // below it the joining costs more than the second worker saves

uint64_t max_units(const Plan& plan, const anyattn_limits& limits) {
  return uint64_t{limits.max_num_tokens} / plan.unit_tokens + limits.max_num_reqs + plan.max_parts;
}

}  // namespace

int64_t local_count(const Shard& shard, int64_t length) {
  if (shard.world == 1) return length;
  const int64_t interleave = shard.interleave, round = interleave * shard.world;
  const int64_t rest = length % round - interleave * shard.rank;
  return length / round * interleave + std::clamp<int64_t>(rest, 0, interleave);
}

uint64_t Worklist::persistent_bytes(const Plan& plan, const anyattn_limits& limits) {
  return max_units(plan, limits) * sizeof(WorkUnit);
}

Worklist::Worklist(const Plan& plan, const anyattn_limits& limits, uint32_t mode, void* persistent)
    : plan_(plan), limits_(limits), units_(static_cast<WorkUnit*>(persistent)) {
  if (mode == ANYATTN_METADATA_GRAPH_CAPTURE)
    throw Error(ANYATTN_UNSUPPORTED,
                "metadata mode 2 (graph capture); allowed: 0 (normal), 1 (fast): the CPU captures no graphs");
  if (mode > ANYATTN_METADATA_GRAPH_CAPTURE) throw Error(ANYATTN_INVALID_ARGUMENT, "metadata mode ", mode, "; allowed: 0, 1");
  if (!persistent)
    throw Error(ANYATTN_INVALID_ARGUMENT, "persistent is null; needed: ", persistent_bytes(plan, limits), " bytes");
  capacity_ = static_cast<uint32_t>(max_units(plan, limits));
}

Interval Worklist::visible(uint32_t req, int64_t token) const {
  const int64_t keys = batch_.seq_lens[req], p = position(req, token);
  const bool causal =
      plan_.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) ? batch_.causal[req] != 0 : !plan_.has(ANYATTN_FEATURE_NON_CAUSAL);
  Interval seen{0, causal ? std::min(keys, p + 1) : keys};
  if (plan_.window_left >= 0) seen.begin = std::max<int64_t>(0, p - plan_.window_left);
  if (plan_.window_right >= 0 && !causal) seen.end = std::min(keys, p + plan_.window_right + 1);
  if (plan_.has(ANYATTN_FEATURE_MM_PREFIX)) {
    for (int32_t i = batch_.mm_prefix_start_loc[req]; i < batch_.mm_prefix_start_loc[req + 1]; ++i) {
      const int64_t first = batch_.mm_prefix_ranges[2 * i], last = batch_.mm_prefix_ranges[2 * i + 1];
      if (p < first || p > last) continue;
      seen.begin = std::min(seen.begin, std::max<int64_t>(first, 0));
      seen.end = std::max(seen.end, std::min(last + 1, keys));
    }
  }
  if (seen.begin >= seen.end) return {};
  return {local_count(plan_.shard, seen.begin), local_count(plan_.shard, seen.end)};
}

Interval Worklist::visible_to_unit(uint32_t req, uint32_t first_token, uint32_t tokens) const {
  Interval all{};
  for (uint32_t t = first_token; t < first_token + tokens; ++t) {
    const Interval one = visible(req, t);
    if (one.begin >= one.end) continue;
    if (all.begin >= all.end) all = one;
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  return all;
}

void Worklist::check(const anyattn_batch& batch) const {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  const bool ranges = plan_.has(ANYATTN_FEATURE_MM_PREFIX);
  check_batch(batch, limits_, {plan_.ragged, plan_.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL), ranges});
  if (batch.num_reqs == 0) return;
  if (batch.query_start_loc[0] != 0)
    throw Error(kWrong, "batch.query_start_loc starts at ", batch.query_start_loc[0], "; needed: 0");
  for (uint32_t r = 0; r < batch.num_reqs; ++r) {
    const int32_t rows = batch.query_start_loc[r + 1] - batch.query_start_loc[r];
    if (rows < 0) throw Error(kWrong, "batch.query_start_loc decreases at request ", r);
    if (batch.seq_lens[r] < 0) throw Error(kWrong, "batch.seq_lens[", r, "] is ", batch.seq_lens[r]);
    if (ranges && batch.mm_prefix_start_loc[r + 1] > batch.mm_prefix_start_loc[r] && !batch.mm_prefix_ranges)
      throw Error(kWrong, "batch.mm_prefix_ranges is null although request ", r, " has ranges");
    if (plan_.ragged && batch.key_start_loc[r + 1] - batch.key_start_loc[r] < batch.seq_lens[r])
      throw Error(kWrong, "batch.seq_lens[", r, "] is ", batch.seq_lens[r], "; key_start_loc gives it ",
                  batch.key_start_loc[r + 1] - batch.key_start_loc[r], " keys");
  }
  const int64_t rows = batch.query_start_loc[batch.num_reqs];
  if (rows > batch.num_tokens)
    throw Error(kWrong, "batch.query_start_loc ends at ", rows, "; allowed: up to num_tokens ", batch.num_tokens);
}

// Splits are shares of the whole work of at least 1 / (4 workers), so all of them together are at most 8 x workers over the
// heads: the bound that memory() reserves, whatever the lengths.
uint32_t Worklist::splits_of(int64_t keys, uint32_t tokens, int64_t total_cost) const {
  if (plan_.max_parts == 0) return 1;
  const int64_t share = std::max<int64_t>(1, total_cost / (4 * int64_t{plan_.num_workers}));
  const int64_t wanted = keys * tokens / share;
  return static_cast<uint32_t>(std::clamp<int64_t>(std::min(wanted, keys / kMinSplitKeys), 1, plan_.max_parts));
}

void Worklist::update(const anyattn_batch& batch, void*) {
  ready_ = false;
  num_units_ = num_split_items_ = 0;
  check(batch);
  batch_ = batch;
  // First pass: items, last tokens first, since under causality they are the longest.
  int64_t total_cost = 0;
  for (uint32_t r = 0; r < batch.num_reqs; ++r) {
    const auto rows = static_cast<uint32_t>(query_len(r));
    const uint32_t items = (rows + plan_.unit_tokens - 1) / plan_.unit_tokens;
    for (uint32_t i = items; i-- > 0;) {
      const uint32_t first = i * plan_.unit_tokens;
      const uint32_t tokens = std::min(plan_.unit_tokens, rows - first);
      const Interval keys = visible_to_unit(r, first, tokens);
      if (!plan_.ragged && keys.end > table_room())
        throw Error(ANYATTN_INVALID_ARGUMENT, "request ", r, " has ", keys.end, " keys; its table row holds ", table_room());
      units_[num_units_++] = {r, first, tokens, static_cast<int32_t>(keys.begin), static_cast<int32_t>(keys.end), 0, 1, 0, 0};
      total_cost += (keys.end - keys.begin) * tokens;
    }
  }
  total_cost *= plan_.head_units;
  // Second pass, from the back so that the list grows in place.
  uint32_t extra = 0;
  for (uint32_t i = 0; i < num_units_; ++i)
    extra += splits_of(units_[i].key_end - units_[i].key_begin, units_[i].tokens, total_cost) - 1;
  if (num_units_ + extra > capacity_)
    throw Error(ANYATTN_INTERNAL, num_units_ + extra, " units exceed the ", capacity_, " reserved");
  uint32_t to = num_units_ + extra, part = 0;
  for (uint32_t i = num_units_; i-- > 0;) {
    const WorkUnit item = units_[i];
    const int64_t keys = item.key_end - item.key_begin;
    const uint32_t splits = splits_of(keys, item.tokens, total_cost);
    const int64_t tiles = (keys + kTileKeys - 1) / kTileKeys;
    for (uint32_t s = splits; s-- > 0;) {
      WorkUnit unit = item;
      unit.split = s;
      unit.num_splits = splits;
      unit.first_part = part;
      unit.split_item = num_split_items_;
      unit.key_begin = static_cast<int32_t>(item.key_begin + tiles * s / splits * kTileKeys);
      unit.key_end =
          static_cast<int32_t>(std::min<int64_t>(item.key_end, item.key_begin + tiles * (s + 1) / splits * kTileKeys));
      units_[--to] = unit;
    }
    if (splits > 1) {
      part += splits * plan_.head_units;
      ++num_split_items_;
    }
  }
  num_units_ += extra;
  ready_ = true;
}

void Worklist::update_block_table(const Worklist& from, const int32_t* block_table, int64_t block_table_stride, void*) {
  if (from.num_units_ > capacity_)
    throw Error(ANYATTN_INVALID_ARGUMENT, "the other metadata has ", from.num_units_, " units; this one holds ", capacity_);
  if (!block_table && !plan_.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "block_table is null");
  std::copy_n(from.units_, from.num_units_, units_);
  num_units_ = from.num_units_;
  num_split_items_ = from.num_split_items_;
  batch_ = from.batch_;
  batch_.block_table = block_table;
  batch_.block_table_stride = block_table_stride;
  ready_ = from.ready_;
}

}  // namespace anyattn::cpu
