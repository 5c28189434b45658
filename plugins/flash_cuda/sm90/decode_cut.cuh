// SPDX-License-Identifier: Apache-2.0
// Where the schedule of decode cuts: requests into items, the row of all units into lines. Included by decode_plan.cuh, and by a test that
// runs it on the host.
#pragma once

#include "cuda_common/scan.cuh"
#include "items.cuh"
#include "sm90/decode.h"

namespace anyattn::flash::sm90 {

__device__ inline Item make_item(const PlanArgs& a, int req, int index) {
  Item item{};
  const int start = a.batch.query_start_loc[req], rows = a.batch.query_start_loc[req + 1] - start;
  item.first_row = start + index * a.tokens;
  item.tokens = min(a.tokens, rows - index * a.tokens);
  item.keys = a.batch.seq_lens[req];
  item.first_position = item.keys - rows + index * a.tokens;
  item.causal = is_causal(a.mask, a.batch, req);
  const Interval seen = visible_to_rows(a.mask, item.causal, item.keys, item.first_position, item.tokens);
  item.begin = max(seen.begin, shared_keys(a.mask, a.batch, req)) / kChunk;
  item.end = max(item.begin, (seen.end + kChunk - 1) / kChunk);
  const int64_t row = req * a.batch.table_stride;
  item.table_low = static_cast<int32_t>(row);
  item.table_high = static_cast<int32_t>(row >> 32);
  return item;
}

__device__ inline int chunks_of(const Item& item) { return max(1, item.end - item.begin); }

struct Split {
  int64_t lines;
  int team_warps;
};
// How many lines share the row of `all` chunks of `units` units, and how many warps a line. Units of equal cost are then cut at equal
// places, or not at all. Many units: two lines a block, so that one team's keys come while the other begins or ends a unit; few keys a
// line: one team's sums are sooner added up than two's. Invariant: always all warps, since who adds what must not depend on the batch.
__device__ inline Split split_of(const PlanArgs& a, int64_t units, int64_t all) {
  if (units == 0) return {1, a.warps};
  if (units <= a.ranks) {
    const int64_t pieces = max(int64_t{1}, min(int64_t{a.ranks} / units, all / units / a.min_chunks));
    return {units * pieces, !a.invariant && all <= units * pieces * a.few_chunks ? kTeamWarps : a.warps};
  }
  const int team_warps = a.invariant ? a.warps : kTeamWarps;
  const int64_t lines = a.ranks * (a.warps / team_warps);
  const int64_t rounds = (units + lines - 1) / lines, even = (units + rounds - 1) / rounds;
  return {even * 20 >= lines * 19 ? even : lines, team_warps};
}

// The row of all units, cut into `used` lines of equal cost.
struct Row {
  int64_t all, used;
  int num_items, unit_cost;
  __device__ int64_t bound(int64_t rank) const { return rank >= used ? all : all * rank / used; }
  __device__ int line_of(int64_t at) const { return static_cast<int>(((at + 1) * used - 1) / all); }
};

struct At {
  int item, head, offset, chunks, cost;
};
__device__ inline At find(const PlanArgs& a, const Row& row, int64_t at) {
  At found;
  found.item = cuda::last_not_above(a.before, row.num_items, at / a.num_heads);
  found.chunks = chunks_of(a.items[found.item]);
  found.cost = found.chunks + row.unit_cost;
  const int64_t rest = at - a.before[found.item] * a.num_heads;
  found.head = static_cast<int>(rest / found.cost);
  found.offset = static_cast<int>(rest % found.cost);
  return found;
}

// Where a line begins: not behind the last chunk of a unit, and inside none that must stay whole.
__device__ inline int64_t begin_of(const PlanArgs& a, const Row& row, int rank) {
  const int64_t at = row.bound(rank);
  if (at >= row.all) return row.all;
  const At found = find(a, row, at);
  return found.offset == 0 || (found.offset < found.chunks && !a.invariant) ? at : at + found.cost - found.offset;
}

__device__ inline void make_line(const PlanArgs& a, const Row& row, int rank, Line& line) {
  const int64_t from = begin_of(a, row, rank), to = begin_of(a, row, rank + 1);
  line.first_pieces = line.last_pieces = 1;
  line.cost = static_cast<int32_t>(to - from);
  if (line.cost == 0) return;
  const At first = find(a, row, from), last = find(a, row, to - 1);
  line.item = a.items[first.item];
  line.item_index = first.item;
  line.head = first.head;
  line.begin = line.item.begin + first.offset;
  if (first.offset > 0) {
    line.first_line = row.line_of(from - first.offset);
    line.first_pieces = row.line_of(from - first.offset + first.chunks - 1) - line.first_line + 1;
  }
  const int64_t start = to - 1 - last.offset;
  if (start >= from && to < start + last.cost) line.last_pieces = row.line_of(start + last.chunks - 1) - rank + 1;
}

}  // namespace anyattn::flash::sm90
