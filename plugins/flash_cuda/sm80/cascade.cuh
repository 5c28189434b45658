// SPDX-License-Identifier: Apache-2.0
// metadata_update of the pass over a shared prefix: which rows share how many keys, whether a pass for them pays, and its line of
// work. The pass sees one request: the rows of all that share, over the first one's blocks, nothing masked. Included by launch.cu.
#pragma once

#include "cascade.h"
#include "sm80/schedule.cuh"

namespace anyattn::flash::sm80 {

// Beside the work, in the persistent block.
struct CascadeParts {
  Batch* kept;      // the pass's one request
  int32_t* starts;  // [2]: its query_start_loc; rows before the first that shares belong to no one
  int32_t* lens;    // [1]
  uint8_t* takes;   // [max_num_tokens], Call::takes
};

struct CascadePlan {
  Work work;
  CascadeParts parts;
  CascadeModel model;
  Mask mask;  // of the layers
  Batch batch;
  SharedPrefix* shared;
  int shared_prefix, longest_query, always;
};

__global__ void __launch_bounds__(kScheduleThreads) plan_cascade(const __grid_constant__ CascadePlan a) {
  __shared__ int leading, requests, first, last;
  const Batch& batch = a.batch;
  if (threadIdx.x == 0) leading = first = batch.num_reqs, requests = 0, last = -1;
  __syncthreads();
  const auto rows_of = [&](int req) { return batch.query_start_loc[req + 1] - batch.query_start_loc[req]; };
  for (int req = threadIdx.x; req < batch.num_reqs; req += kScheduleThreads)
    if (rows_of(req) > a.longest_query) atomicMin(&leading, req);
  __syncthreads();
  SharedPrefix shared{a.shared_prefix / kSharedStep * kSharedStep, leading};
  for (int req = threadIdx.x; req < leading; req += kScheduleThreads) {
    const bool takes = shared_keys(a.mask, batch, shared, req) > 0;
    for (int row = batch.query_start_loc[req]; row < batch.query_start_loc[req + 1]; ++row) a.parts.takes[row] = takes;
    if (!takes) continue;
    atomicAdd(&requests, 1);
    atomicMin(&first, req);
    atomicMax(&last, req);
  }
  __syncthreads();
  const int from = last < 0 ? 0 : batch.query_start_loc[first], to = last < 0 ? 0 : batch.query_start_loc[last + 1];
  if (last < 0 || (!a.always && !a.model.pays(requests, to - from, shared.keys))) shared.keys = 0;
  const int num_items = shared.keys == 0 ? 0 : (to - from + a.work.tokens - 1) / a.work.tokens;
  const int tiles = shared.keys / a.work.keys;
  if (threadIdx.x == 0) {
    *a.shared = shared;
    a.parts.starts[0] = from;
    a.parts.starts[1] = to;
    a.parts.lens[0] = shared.keys;
    Batch one{};
    one.query_start_loc = a.parts.starts;
    one.seq_lens = a.parts.lens;
    one.block_table = batch.block_table + (last < 0 ? 0 : first * batch.table_stride);
    one.num_reqs = 1;
    one.num_tokens = to;
    *a.parts.kept = one;
  }
  for (int i = threadIdx.x; i < num_items; i += kScheduleThreads) {
    a.work.items[i] = {0, i * a.work.tokens, min(a.work.tokens, to - from - i * a.work.tokens), 0, shared.keys, tiles};
    a.work.before[i] = static_cast<int64_t>(i) * (tiles + a.work.unit_cost);
  }
  __syncthreads();
  deal(a.work, num_items, static_cast<int64_t>(num_items) * (tiles + a.work.unit_cost));
}

}  // namespace anyattn::flash::sm80
