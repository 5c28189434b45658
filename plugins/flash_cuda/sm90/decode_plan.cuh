// SPDX-License-Identifier: Apache-2.0
// The schedule of decode, made on the device by one block: items, then a line for each block of the launch. Included by decode.cu.
#pragma once

#include "sm90/decode_cut.cuh"

namespace anyattn::flash::sm90 {

inline constexpr int kPlanThreads = 1024;

__global__ void __launch_bounds__(kPlanThreads) decode_plan(const __grid_constant__ PlanArgs a) {
  const int num_reqs = a.batch.num_reqs;
  if (threadIdx.x == 0) *a.kept = a.batch;
  int64_t num_items = 0, total;
  for (int first = 0; first < num_reqs; first += kPlanThreads) {
    const int req = first + static_cast<int>(threadIdx.x);
    const int64_t before = cuda::scan<kPlanThreads>(req < num_reqs ? items_of(a, a.batch, req) : 0, &total);
    if (req < num_reqs) a.first_item[req] = static_cast<int32_t>(num_items + before);
    num_items += total;
  }
  __syncthreads();
  const int unit_cost = num_items * a.num_heads > a.ranks ? a.unit_cost : 0;
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
  const int64_t all = cost * a.num_heads;
  const Split split = split_of(a, num_items * a.num_heads, all);
  const Row row{all, split.lines, static_cast<int>(num_items), unit_cost};
  const int lines = a.ranks * (a.warps / kTeamWarps);
  for (int i = threadIdx.x; i < lines; i += kPlanThreads) {  // teams that are not used have an empty line
    Line line{};
    const int rank = split.team_warps == a.warps ? i % a.ranks : i;  // one team: a copy for each half of its warps
    if (rank < row.used) make_line(a, row, rank, line);
    line.warps_of_team = split.team_warps;
    line.unit_cost = row.unit_cost;
    const int64_t table = reinterpret_cast<int64_t>(a.batch.block_table);
    line.table_low = static_cast<int32_t>(table);
    line.table_high = static_cast<int32_t>(table >> 32);
    if (a.min_query == 0) {
      line.unowned_begin = num_reqs ? a.batch.query_start_loc[num_reqs] : 0;
      line.unowned_end = a.batch.num_tokens;
    }
    a.lines[i] = line;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < lines * kWindow; i += kPlanThreads) {
    Line& line = a.lines[i / kWindow];
    const int chunk = line.begin + i % kWindow;
    line.blocks[i % kWindow] =
        chunk < min(line.item.end, line.begin + line.cost)
            ? a.batch.block_table[static_cast<uint32_t>(line.item.table_low) +
                                  (static_cast<int64_t>(line.item.table_high) << 32) + chunk / a.chunks_per_block]
            : -1;
  }
  __threadfence();  // forward reads its line before it waits for the kernel in front of it, which may be this one
}

}  // namespace anyattn::flash::sm90
