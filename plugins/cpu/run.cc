// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "anyattn/dtypes.hpp"

namespace anyattn::cpu {
namespace {

constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 255) & ~uint64_t{255}; }

// The front of the scratch block, one line each so that workers do not share them.
struct Shared {
  alignas(64) std::atomic<uint64_t> next;
  alignas(64) std::atomic<int64_t> bad_request;  // -1: none
};

// A worker's area begins with the visible keys and, with rotated rows, the unit's query in their rotation.
// [Shared | splits left of each item | parts | one area a worker]
struct Areas {
  explicit Areas(const ScratchShape& shape)
      : part_floats(cpu::part_floats(shape.rows, shape.head_size_v)),
        left(aligned(sizeof(Shared))),
        parts(left + aligned(uint64_t{shape.max_parts} * sizeof(std::atomic<uint32_t>))),
        workers(parts + aligned(shape.max_parts * part_floats * sizeof(float))),
        visible_bytes(aligned(uint64_t{shape.tokens} * 2 * sizeof(int32_t))),
        query_bytes(shape.rotated ? aligned(uint64_t{shape.rows} * shape.head_size * sizeof(float)) : 0),
        worker_bytes(visible_bytes + query_bytes + aligned(unit_scratch_bytes(shape.rows, shape.head_size, shape.head_size_v))),
        bytes(workers + worker_bytes * shape.num_workers) {}
  uint64_t part_floats, left, parts, workers, visible_bytes, query_bytes, worker_bytes, bytes;
};

// f(index, area of the worker) for every index below count; whoever is free takes the next one.
template <class F>
void share_out(const Host& host, Shared& shared, char* scratch, const Areas& areas, uint64_t count, const F& f) {
  shared.next.store(0, std::memory_order_relaxed);
  const uint64_t crews = std::min<uint64_t>(host.num_workers(), count);
  host.parallel_for(crews, 1, [&](uint64_t, uint64_t, uint32_t worker) {
    char* area = scratch + areas.workers + worker * areas.worker_bytes;
    for (uint64_t i; (i = shared.next.fetch_add(1, std::memory_order_relaxed)) < count;) f(i, area);
  });
}

void set_visible(Unit& unit, char* area, uint32_t tokens) {
  unit.visible_begin = reinterpret_cast<int32_t*>(area);
  unit.visible_end = unit.visible_begin + tokens;
}
int32_t* writable(const int32_t* visible) { return const_cast<int32_t*>(visible); }

// Moves the shared pointers of `unit` to a row of the batch and a query head.
void move_to(Unit& unit, int64_t row, int64_t head) {
  for (int part = 0; part < 2; ++part)
    if (unit.q_size[part]) unit.q[part] += row * unit.q_token_bytes[part] + head * unit.q_head_bytes[part];
  unit.out += row * unit.out_token_bytes + head * unit.out_head_bytes;
  if (unit.lse) unit.lse += row * unit.lse_token_stride + head * unit.lse_head_stride;
  if (unit.alibi_slopes) unit.alibi_slopes += head;
  if (unit.sinks) unit.sinks += head;
}

// The unit's query as float32 in the rotation of its keys, which multiplies scores by the head size.
void rotate_query(const Plan& plan, Unit& unit, char* area) {
  const uint32_t size = unit.q_size[0];
  auto* to = reinterpret_cast<float*>(area);
  for (uint32_t row = 0; row < unit.tokens * unit.heads; ++row) {
    const char* from = unit.q[0] + row / unit.heads * unit.q_token_bytes[0] + row % unit.heads * unit.q_head_bytes[0];
    plan.kernels->rotate_row(to + size_t{row} * size, from, unit.q_kind, size);
  }
  unit.q[0] = area;
  unit.q_kind = kF32;
  unit.q_head_bytes[0] = int64_t{size} * 4;
  unit.q_token_bytes[0] = unit.q_head_bytes[0] * unit.heads;
  unit.softmax_scale /= static_cast<float>(size);
  unit.rotated = true;
}

// Rows past the last request: 0 and -inf, sinks or not.
void clear_rows(const Call& call, const Plan& plan, int64_t begin, int64_t end) {
  const size_t row_bytes = size_t{call.unit.head_size_v} * dtype_bytes(plan.out_dtype);
  for (int64_t row = begin; row < end; ++row) {
    for (uint32_t head = 0; head < plan.num_q_heads; ++head) {
      Unit at = call.unit;
      move_to(at, row, head);
      std::memset(at.out, 0, row_bytes);
      if (at.lse) *at.lse = -__builtin_inff();
    }
  }
}

}  // namespace

ScratchShape scratch_shape(const Plan& plan) {
  return {plan.unit_rows(), plan.unit_tokens, plan.head_size, plan.head_size_v, plan.max_parts, plan.num_workers, plan.rotated};
}

ScratchShape mha_scratch_shape(const Plan& plan) {
  return {kBlockRows, kBlockRows, plan.mha_head_size, plan.mha_head_size_v, 0, plan.num_workers, false};
}

uint64_t scratch_bytes(const ScratchShape& shape) { return Areas(shape).bytes; }

void check_scratch(const void* scratch) {
  if (!scratch) throw Error(ANYATTN_INVALID_ARGUMENT, "scratch is null; needed: the block that memory() sizes");
  const uint64_t past = reinterpret_cast<uintptr_t>(scratch) % 256;
  if (past) throw Error(ANYATTN_INVALID_ARGUMENT, "scratch is ", past, " bytes past a multiple of 256; needed: aligned memory");
}

void run_worklist(const Host& host, const Plan& plan, const Worklist& work, const Call& call) {
  auto* scratch = static_cast<char*>(call.scratch);
  const Areas areas(scratch_shape(plan));
  Shared& shared = *new (scratch) Shared{};
  shared.bad_request.store(-1, std::memory_order_relaxed);
  auto* left = reinterpret_cast<std::atomic<uint32_t>*>(scratch + areas.left);
  for (uint32_t i = 0; i < work.num_split_items() * plan.head_units; ++i) new (left + i) std::atomic<uint32_t>(0);
  const anyattn_batch& batch = work.batch();
  const uint32_t group = plan.num_q_heads / plan.num_kv_heads;
  const uint32_t pieces = plan.head_units / plan.num_kv_heads;  // units over the heads of one kv head

  const auto attend_one = [&](uint64_t index, char* area) {
    const WorkUnit& item = work.unit(static_cast<uint32_t>(index / plan.head_units));
    const auto head_unit = static_cast<uint32_t>(index % plan.head_units);
    const uint32_t kv_head = head_unit / pieces, first_head = head_unit % pieces * plan.unit_heads;
    Unit unit = call.unit;
    move_to(unit, int64_t{batch.query_start_loc[item.req]} + item.first_token, int64_t{kv_head} * group + first_head);
    unit.tokens = item.tokens;
    unit.heads = std::min(plan.unit_heads, group - first_head);
    unit.key_begin = item.key_begin;
    unit.key_end = item.key_end;
    unit.first_position = work.position(item.req, item.first_token);
    unit.keys.k += kv_head * call.k_head_bytes;
    unit.keys.v += kv_head * call.v_head_bytes;
    if (call.k_scales) unit.softmax_scale *= call.k_scales[kv_head * call.scale_stride];
    if (call.v_scales) unit.value_scale *= call.v_scales[kv_head * call.scale_stride];
    if (plan.ragged) {
      unit.keys.k += batch.key_start_loc[item.req] * unit.keys.k_token_bytes;
      unit.keys.v += batch.key_start_loc[item.req] * unit.keys.v_token_bytes;
    } else {
      unit.keys.table = batch.block_table + int64_t{item.req} * batch.block_table_stride;
    }
    set_visible(unit, area, plan.unit_tokens);
    for (uint32_t t = 0; t < item.tokens; ++t) {
      const Interval seen = work.visible(item.req, item.first_token + t);
      writable(unit.visible_begin)[t] = static_cast<int32_t>(seen.begin);
      writable(unit.visible_end)[t] = static_cast<int32_t>(seen.end);
    }
    unit.scratch = area + areas.visible_bytes + areas.query_bytes;
    if (plan.rotated) rotate_query(plan, unit, area + areas.visible_bytes);
    float* parts = nullptr;
    if (item.num_splits > 1) {
      parts = reinterpret_cast<float*>(scratch + areas.parts) +
              (item.first_part + uint64_t{head_unit} * item.num_splits) * areas.part_floats;
      unit.part = parts + item.split * areas.part_floats;
      if (item.split != 0) unit.sinks = nullptr;  // a sink counts once
    }
    if (call.attend(&unit) != 0) {
      shared.bad_request.store(item.req, std::memory_order_relaxed);
      return;
    }
    if (item.num_splits == 1) return;
    // Whoever finishes an item's last split joins all of them; acquire and release order the parts.
    auto& done = left[uint64_t{item.split_item} * plan.head_units + head_unit];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == item.num_splits)
      plan.kernels->combine(&unit, parts, areas.part_floats, item.num_splits);
  };
  share_out(host, shared, scratch, areas, uint64_t{work.num_units()} * plan.head_units, attend_one);

  const int64_t rows = batch.num_reqs ? batch.query_start_loc[batch.num_reqs] : 0;
  clear_rows(call, plan, rows, batch.num_tokens);
  const int64_t bad = shared.bad_request.load(std::memory_order_relaxed);
  if (bad >= 0)
    throw Error(ANYATTN_INVALID_ARGUMENT, "block_table row ", bad,
                " has an entry that a visible key needs and that is not below num_blocks ", call.unit.keys.num_blocks);
}

void run_mha(const Host& host, const Plan& plan, const MhaRequests& requests, const Call& call) {
  auto* scratch = static_cast<char*>(call.scratch);
  const Areas areas(mha_scratch_shape(plan));
  Shared& shared = *new (scratch) Shared{};
  const auto rows_of = [&](uint32_t r) { return int64_t{requests.query_start_loc[r + 1]} - requests.query_start_loc[r]; };
  const auto blocks_of = [&](uint32_t r) { return static_cast<uint64_t>(rows_of(r) + kBlockRows - 1) / kBlockRows; };
  uint64_t blocks = 0;
  for (uint32_t r = 0; r < requests.count; ++r) blocks += blocks_of(r);

  const auto attend_one = [&](uint64_t index, char* area) {
    const auto head = static_cast<int64_t>(index % plan.num_q_heads);
    uint64_t block = index / plan.num_q_heads;
    uint32_t r = 0;
    for (; block >= blocks_of(r); ++r) block -= blocks_of(r);
    const int64_t first = static_cast<int64_t>(block) * kBlockRows;
    const int64_t keys = requests.key_start_loc[r + 1] - requests.key_start_loc[r];
    Unit unit = call.unit;
    move_to(unit, requests.query_start_loc[r] + first, head);
    unit.tokens = static_cast<uint32_t>(std::min<int64_t>(kBlockRows, rows_of(r) - first));
    unit.heads = 1;
    unit.first_position = keys - rows_of(r) + first;
    unit.keys.k += head * call.k_head_bytes + requests.key_start_loc[r] * unit.keys.k_token_bytes;
    unit.keys.v += head * call.v_head_bytes + requests.key_start_loc[r] * unit.keys.v_token_bytes;
    set_visible(unit, area, kBlockRows);
    int64_t end = 0;
    for (uint32_t t = 0; t < unit.tokens; ++t) {
      end = requests.causal ? std::clamp<int64_t>(unit.first_position + t + 1, 0, keys) : keys;
      writable(unit.visible_begin)[t] = 0;
      writable(unit.visible_end)[t] = static_cast<int32_t>(end);
    }
    unit.key_begin = 0;
    unit.key_end = static_cast<int32_t>(end);
    unit.scratch = area + areas.visible_bytes;
    call.attend(&unit);
  };
  share_out(host, shared, scratch, areas, blocks * plan.num_q_heads, attend_one);
  clear_rows(call, plan, requests.count ? requests.query_start_loc[requests.count] : 0, requests.num_rows);
}

}  // namespace anyattn::cpu
