// SPDX-License-Identifier: Apache-2.0
// The schedule of decode, made on the device by one block: items, then a line for each block of the launch. Included by decode.cu.
#pragma once

#include "cuda_common/scan.cuh"
#include "sm90/decode.h"

namespace anyattn::flash::sm90 {

inline constexpr int kPlanThreads = 1024;

__device__ inline int items_of(const PlanArgs& a, int req) {
  const int rows = a.batch.query_start_loc[req + 1] - a.batch.query_start_loc[req];
  return rows < a.min_query || rows > a.max_query ? 0 : (rows + a.tokens - 1) / a.tokens;
}

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

// How many blocks share the row of `all` chunks of `units` units. Units of equal cost are then cut at equal places, or not at all.
__device__ inline int64_t blocks_used(const PlanArgs& a, int64_t units, int64_t all) {
  if (units == 0) return 1;
  if (units <= a.ranks) {
    const int64_t pieces = max(int64_t{1}, min(int64_t{a.ranks} / units, all / units / a.min_chunks));
    return units * pieces;
  }
  const int64_t rounds = (units + a.ranks - 1) / a.ranks, even = (units + rounds - 1) / rounds;
  return even * 20 >= a.ranks * 19 ? even : a.ranks;
}

struct Row {  // the row of all units
  int64_t all, used;
  int num_items, unit_cost;
  __device__ int64_t bound(int64_t rank) const { return rank >= used ? all : all * rank / used; }
  __device__ int rank_of(int64_t at) const { return static_cast<int>(((at + 1) * used - 1) / all); }
};

struct At {
  int item, head, offset, chunks, cost;
};
__device__ inline At find(const PlanArgs& a, const Row& row, int64_t at) {
  At found;
  found.item = cuda::last_not_above(a.before, row.num_items, at / a.num_kv_heads);
  found.chunks = chunks_of(a.items[found.item]);
  found.cost = found.chunks + row.unit_cost;
  const int64_t rest = at - a.before[found.item] * a.num_kv_heads;
  found.head = static_cast<int>(rest / found.cost);
  found.offset = static_cast<int>(rest % found.cost);
  return found;
}

// Where a block begins: not behind the last chunk of a unit, and inside none that must stay whole.
__device__ inline int64_t begin_of(const PlanArgs& a, const Row& row, int rank) {
  const int64_t at = row.bound(rank);
  if (at >= row.all) return row.all;
  const At found = find(a, row, at);
  return found.offset == 0 || (found.offset < found.chunks && !a.invariant) ? at : at + found.cost - found.offset;
}

__device__ inline void make_line(const PlanArgs& a, const Row& row, int rank, int lane) {
  Line line{};
  const int64_t from = begin_of(a, row, rank), to = begin_of(a, row, rank + 1);
  line.first_pieces = line.last_pieces = 1;
  line.cost = static_cast<int32_t>(to - from);
  line.unit_cost = row.unit_cost;
  const int64_t table = reinterpret_cast<int64_t>(a.batch.block_table);
  line.table_low = static_cast<int32_t>(table);
  line.table_high = static_cast<int32_t>(table >> 32);
  if (a.min_query == 0) {
    line.unowned_begin = a.batch.num_reqs ? a.batch.query_start_loc[a.batch.num_reqs] : 0;
    line.unowned_end = a.batch.num_tokens;
  }
  int32_t block = -1;
  if (line.cost > 0) {
    const At first = find(a, row, from), last = find(a, row, to - 1);
    line.item = a.items[first.item];
    line.item_index = first.item;
    line.head = first.head;
    line.begin = line.item.begin + first.offset;
    if (first.offset > 0) {
      line.first_rank = row.rank_of(from - first.offset);
      line.first_pieces = row.rank_of(from - first.offset + first.chunks - 1) - line.first_rank + 1;
    }
    const int64_t start = to - 1 - last.offset;
    if (start >= from && to < start + last.cost) line.last_pieces = row.rank_of(start + last.chunks - 1) - rank + 1;
    const int chunk = line.begin + lane;
    if (chunk < min(line.item.end, line.begin + line.cost))
      block = a.batch.block_table[static_cast<uint32_t>(line.item.table_low) +
                                  (static_cast<int64_t>(line.item.table_high) << 32) + chunk / a.chunks_per_block];
  }
  if (lane == 0) a.lines[rank] = line;
  __syncwarp();
  a.lines[rank].blocks[lane] = block;
}

__global__ void __launch_bounds__(kPlanThreads) decode_plan(const __grid_constant__ PlanArgs a) {
  const int num_reqs = a.batch.num_reqs;
  if (threadIdx.x == 0) *a.kept = a.batch;
  int64_t num_items = 0, total;
  for (int first = 0; first < num_reqs; first += kPlanThreads) {
    const int req = first + static_cast<int>(threadIdx.x);
    const int64_t before = cuda::scan<kPlanThreads>(req < num_reqs ? items_of(a, req) : 0, &total);
    if (req < num_reqs) a.first_item[req] = static_cast<int32_t>(num_items + before);
    num_items += total;
  }
  __syncthreads();
  const int unit_cost = num_items * a.num_kv_heads > a.ranks ? a.unit_cost : 0;
  int64_t cost = 0;
  for (int first = 0; first < num_items; first += kPlanThreads) {
    const int index = first + static_cast<int>(threadIdx.x);
    Item item{};
    if (index < num_items) {
      const int req = cuda::last_not_above(a.first_item, num_reqs, index);
      item = make_item(a, req, index - a.first_item[req]);
      a.items[index] = item;
    }
    const int64_t before = cuda::scan<kPlanThreads>(index < num_items ? chunks_of(item) + unit_cost : 0, &total);
    if (index < num_items) a.before[index] = cost + before;
    cost += total;
  }
  __syncthreads();
  const int64_t all = cost * a.num_kv_heads;
  const Row row{all, blocks_used(a, num_items * a.num_kv_heads, all), static_cast<int>(num_items), unit_cost};
  for (int rank = threadIdx.x / 32; rank < a.ranks; rank += kPlanThreads / 32) make_line(a, row, rank, threadIdx.x % 32);
}

}  // namespace anyattn::flash::sm90
