// SPDX-License-Identifier: Apache-2.0
// metadata_update of the general path: one block lays all keys of all units in one line, which the blocks of forward share in equal
// pieces. Balanced whatever the lengths are, and at most one cut a block (stream-K, arXiv:2301.03598). Included by launch.cu.
#pragma once

#include "cuda_common/scan.cuh"
#include "sm80/work.h"
#include "visible.cuh"

namespace anyattn::flash::sm80 {

inline constexpr int kScheduleThreads = 512;

__device__ inline int items_of(const Work& work, const Batch& batch, int req) {
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req];
  return rows < work.min_query || rows > work.max_query ? 0 : (rows + work.tokens - 1) / work.tokens;
}

__device__ inline Item make_item(const Work& work, const Mask& mask, const Batch& batch, int req, int index) {
  Item item;
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req], keys = batch.seq_lens[req];
  item.req = req;
  item.first_token = index * work.tokens;
  item.tokens = min(work.tokens, rows - item.first_token);
  const Interval seen = visible_to_rows(mask, is_causal(mask, batch, req), keys, keys - rows + item.first_token, item.tokens);
  item.key_begin = max(seen.begin, shared_keys(mask, batch, req));
  item.key_end = max(seen.end, item.key_begin);
  item.tiles = max(1, (item.key_end - item.key_begin + work.keys - 1) / work.keys);
  return item;
}

// Where the work at `at` of the line stands. Behind a unit's last tile, and inside a unit that is never cut: where the next one begins.
__device__ inline Place place_at(const Work& work, int num_items, int64_t at) {
  Place place{};
  place.item = cuda::last_not_above(work.before, num_items, at / work.head_units);
  place.first = work.items[place.item];
  const int64_t rest = at - work.before[place.item] * work.head_units;
  const int cost = work.cost_of(place.first);
  place.head = static_cast<int>(rest / cost);
  place.tile = static_cast<int>(rest % cost);
  if (place.tile == 0 || (place.tile < place.first.tiles && !work.invariant)) return place;
  place.tile = 0;
  if (++place.head == work.head_units) {
    place.head = 0;
    ++place.item;
  }
  if (place.item < num_items) place.first = work.items[place.item];
  return place;
}

// Deals the line of `num_items` items, `cost` for each head unit, to the blocks. Every thread of the block calls it, after a barrier
// behind the last store to items and before.
__device__ inline void deal(const Work& work, int64_t num_items, int64_t cost) {
  __shared__ int cuts;
  if (threadIdx.x == 0) cuts = 0;
  const int64_t all = cost * work.head_units;
  const int used = static_cast<int>(min(static_cast<int64_t>(work.num_blocks), (all + work.min_cost - 1) / work.min_cost));
  for (int b = threadIdx.x; b <= work.num_blocks; b += kScheduleThreads) {
    Place place{};
    place.item = static_cast<int32_t>(num_items);
    if (b < used) place = place_at(work, static_cast<int>(num_items), all * b / used);
    work.places[b] = place;
  }
  __syncthreads();
  for (int b = threadIdx.x; b + 1 < used; b += kScheduleThreads) {
    const Place next = work.places[b + 1], own = work.places[b];
    if (next.tile == 0 || (own.item == next.item && own.head == next.head && own.tile > 0)) continue;
    // Block p begins at floor(all p / used): the last one before the unit's last tile ends.
    const int64_t end = all * (b + 1) / used + next.first.tiles - next.tile;
    const auto last = static_cast<int32_t>((end * used + all - 1) / all - 1);
    work.cuts[atomicAdd(&cuts, 1)] = {b, last - b + 1, next.head, 0, next.first};
  }
  __syncthreads();
  if (threadIdx.x == 0) *work.num_cuts = cuts;
}

__global__ void __launch_bounds__(kScheduleThreads) schedule(const Work work, const Mask mask, const Batch batch, Batch* kept) {
  if (threadIdx.x == 0) *kept = batch;
  int64_t num_items = 0, cost = 0, total = 0;
  for (int first = 0; first < batch.num_reqs; first += kScheduleThreads) {
    const int req = first + threadIdx.x;
    const int64_t before = cuda::scan<kScheduleThreads>(req < batch.num_reqs ? items_of(work, batch, req) : 0, &total);
    if (req < batch.num_reqs) work.first[req] = static_cast<int32_t>(num_items + before);
    num_items += total;
  }
  __syncthreads();
  for (int first = 0; first < num_items; first += kScheduleThreads) {
    const int index = first + threadIdx.x;
    int own = 0;
    if (index < num_items) {
      const int req =
          cuda::last_not_above(work.first, batch.num_reqs, index);  // requests without items share their index: the last counts
      const Item item = make_item(work, mask, batch, req, index - work.first[req]);
      work.items[index] = item;
      own = work.cost_of(item);
    }
    const int64_t before = cuda::scan<kScheduleThreads>(own, &total);
    if (index < num_items) work.before[index] = cost + before;
    cost += total;
  }
  __syncthreads();
  deal(work, num_items, cost);
}

}  // namespace anyattn::flash::sm80
