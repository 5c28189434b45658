// SPDX-License-Identifier: Apache-2.0
// What a schedule is made with: exclusive sums over a block, a search in ascending sums. Included by kernels that run as one block.
#pragma once

#include <cstdint>

namespace anyattn::cuda {

// Sum of `value` over the threads before this one of a block of kThreads; total: over all. Every thread of the block calls it.
template <int kThreads>
__device__ inline int64_t scan(int64_t value, int64_t* total) {
  __shared__ int64_t sums[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // the sums of the call before have been read
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  int64_t before = 0, all = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += sums[w];
    all += sums[w];
  }
  *total = all;
  return before + sum - value;
}

// The last index in [0, count) with values[index] <= wanted; values ascend and values[0] <= wanted.
template <class T>
__device__ int last_not_above(const T* values, int count, T wanted) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (values[middle] <= wanted)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace anyattn::cuda
