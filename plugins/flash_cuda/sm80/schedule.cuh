// SPDX-License-Identifier: Apache-2.0
// metadata_update of the general path: one block lays all keys of all units in one line, which the blocks of forward share in equal
// pieces. Balanced whatever the lengths are, and at most one cut a block (stream-K, arXiv:2301.03598). Included by launch.cu.
#pragma once

#include "sm80/cut.cuh"

namespace anyattn::flash::sm80 {

inline constexpr int kScheduleThreads = 512;

// Deals the line of `num_items` items, `cost` for each head unit, to the blocks. Every thread of the block calls it, after a barrier
// behind the last store to items and before.
__device__ inline void deal(const Work& work, int64_t num_items, int64_t cost) {
  __shared__ int cuts;
  if (threadIdx.x == 0) cuts = 0;
  const Sharing sharing(work, num_items, cost);
  for (int b = threadIdx.x; b <= work.num_blocks; b += kScheduleThreads) work.places[b] = sharing.place(work, b);
  __syncthreads();
  for (int b = threadIdx.x; b + 1 < sharing.used; b += kScheduleThreads) {
    const CutUnit cut = sharing.cut_behind(work, b);
    if (cut.pieces > 0) work.cuts[atomicAdd(&cuts, 1)] = cut;
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
