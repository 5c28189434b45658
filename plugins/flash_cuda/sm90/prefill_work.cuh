// SPDX-License-Identifier: Apache-2.0
// The work list of the Hopper prefill: made on the device once a step, longest first, read by every layer's launch.
// Included by the kernel and the family's host side. Lengths exist only on the device; the list is sized by limits.
#pragma once

#include <cstdint>

#include "flash_cuda/sm90/prefill_args.h"
#include "flash_cuda/sm90/prefill_deal.cuh"

namespace anyattn::flash {

struct PrefillPlan {
  int tokens_per_tile, keys_per_tile;
  int window_left, window_right, causality;
  int min_query, max_query;
  int heads, kv_ratio;  // row groups; row groups a kv head
  int key_bytes;        // K and V of one token and kv head
  int blocks;           // of the launch
};

// One block. Counts works by their number of key tiles, then places them by descending number: a static deal of the list over the
// blocks, forth and back, is then even. Works of one length come in any order: no result depends on it.
__global__ void __launch_bounds__(1024) prefill_schedule(Batch batch, PrefillPlan plan, Batch* kept, PrefillHeader* header) {
  constexpr int kBins = 1024;
  __shared__ int bins[kBins];
  constexpr int64_t kSectionBytes = 16 << 20;  // L2 has 50 MB in two halves, and a line may lie in both
  __shared__ int longest, count;
  __shared__ unsigned long long all_keys;          // that some row of this lane sees
  __shared__ int busiest[SectionChoices::kCount];  // tiles of the busiest block
  auto* works = reinterpret_cast<PrefillWork*>(header + 1);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bins[threadIdx.x] = 0;
  if (threadIdx.x < SectionChoices::kCount) busiest[threadIdx.x] = 0;
  if (threadIdx.x == 0) longest = 0, all_keys = 0;
  __syncthreads();
  if (threadIdx.x == 0) *kept = batch;

  // Calls each(work, its key tiles, whether it is the first of its request) for every row tile of this lane; the request past the
  // last one is the padding.
  const auto walk = [&](auto&& each) {
    for (int request = warp; request <= batch.num_reqs; request += 32) {
      const bool padding = request == batch.num_reqs;
      if (padding && plan.min_query > 0) continue;
      const int begin = batch.num_reqs > 0 ? batch.query_start_loc[request] : 0;  // without requests arrays may be null
      const int end = padding ? batch.num_tokens : batch.query_start_loc[request + 1];
      const int query_len = end - begin, seq_len = padding ? 0 : batch.seq_lens[request];
      if (!padding && (query_len < plan.min_query || query_len > plan.max_query)) continue;
      const bool causal =
          plan.causality == kCausal || (plan.causality == kPerRequest && !padding && batch.causal[request] != 0);
      const int right = causal ? 0 : plan.window_right < 0 ? kFar : plan.window_right;
      for (int at = lane * plan.tokens_per_tile; at < query_len; at += 32 * plan.tokens_per_tile) {
        PrefillWork work{};
        work.token = begin + at;
        work.tokens = min(plan.tokens_per_tile, query_len - at);
        work.position = seq_len - query_len + at;
        work.seq_len = seq_len;
        work.keys = padding ? -1 : batch.key_start_loc != nullptr ? batch.key_start_loc[request] : request;
        work.right = right;
        const int last = min(seq_len, work.position + work.tokens + min(right, kFar));  // past the last visible key
        const int first = plan.window_left < 0 ? 0 : max(0, work.position - plan.window_left);
        if (last > first) {
          work.first_tile = first / plan.keys_per_tile;
          work.end_tile = (last + plan.keys_per_tile - 1) / plan.keys_per_tile;
        }
        each(work, work.end_tile - work.first_tile, at == 0);
      }
    }
  };

  walk([&](const PrefillWork& work, int tiles, bool first) {
    atomicMax(&longest, tiles);
    if (first) atomicAdd(&all_keys, static_cast<unsigned long long>(work.seq_len - work.first_tile * plan.keys_per_tile));
  });
  __syncthreads();
  const int step = longest / kBins + 1;  // tiles a bin
  walk([&](const PrefillWork&, int tiles, bool) { atomicAdd(&bins[kBins - 1 - tiles / step], 1); });
  __syncthreads();
  // Exclusive sums in place.
  __shared__ int sums[32];
  const int mine = bins[threadIdx.x];
  int sum = mine;
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < warp; w++) before += sums[w];
  bins[threadIdx.x] = before + sum - mine;
  if (threadIdx.x == kBins - 1) header->count = count = before + sum;
  __syncthreads();
  walk([&](const PrefillWork& work, int tiles, bool) { works[atomicAdd(&bins[kBins - 1 - tiles / step], 1)] = work; });
  __syncthreads();
  const SectionChoices choices(plan.heads / plan.kv_ratio, plan.kv_ratio, static_cast<int64_t>(all_keys) * plan.key_bytes,
                               kSectionBytes);
  if (choices.most > 1) {  // each thread plays a block of the launch
    for (int i = threadIdx.x; i < SectionChoices::kCount * plan.blocks; i += 1024) {
      const int choice = i / plan.blocks, block = i % plan.blocks;
      SectionDeal deal(count, plan.heads, choices.section_heads(choice), plan.blocks);
      int tiles = 0;
      for (int index, head; deal.next(block, plan.blocks, index, head);)
        tiles += works[index].end_tile - works[index].first_tile + 1;  // its begin and end cost about one
      atomicMax(&busiest[choice], tiles);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) header->section_heads = choices.choose(busiest);
}

}  // namespace anyattn::flash
