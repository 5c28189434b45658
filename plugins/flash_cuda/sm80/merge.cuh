// SPDX-License-Identifier: Apache-2.0
// Joins the pieces of units that were cut between blocks. Included by launch.cu. Source: arXiv:2311.01282.
#pragma once

#include "cuda_common/launch.cuh"
#include "sm80/rows.cuh"

namespace anyattn::flash::sm80 {

inline constexpr int kMergeThreads = 128, kMergeBlocks = 8;  // a multiprocessor holds that many at once

__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Warps take rows of the units that were cut, in turn: a row's pieces are independent loads, and few loads wait for another. Launched
// so that it may begin beside the attention launch (sm_90): what it is to do is known before that ends.
__global__ void __launch_bounds__(kMergeThreads, kMergeBlocks)
    merge_parts(const __grid_constant__ Call call, int rows, int head) {
  constexpr int kWarps = kMergeThreads / 32, kSteps = 4;  // of 64 columns
  const int lane = threadIdx.x % 32, all = *call.work.num_cuts * rows, floats = head + 4;
  for (int i = blockIdx.x * kWarps + threadIdx.x / 32; i < all; i += gridDim.x * kWarps) {
    const CutUnit cut = call.work.cuts[i / rows];
    const int row = i % rows;
    const Unit u = unit_of(call, *call.f.kept, cut.item, cut.head, 0, 0);
    const RowPlace at = place_of(u, row);
    if (!is_written(call, u, row, at)) continue;
    cuda::wait_for_launch_before();
    const auto part = [&](int piece) {  // a unit's first piece stands in its block's second place
      return call.part(2 * (static_cast<int64_t>(cut.block) + piece) + (piece == 0), rows * floats) + row * floats;
    };
    const auto state_of = [&](int piece) {
      return piece < cut.pieces ? *reinterpret_cast<const float2*>(part(piece)) : float2{cuda::kMinusInfinity, 0};
    };
    float2 state = state_of(lane);
    float top = state.x, sum = 0, value[kSteps][2] = {};
    for (int piece = lane + 32; piece < cut.pieces; piece += 32) top = fmaxf(top, *part(piece));
    top = warp_max(top);
    for (int first = 0; first < cut.pieces; first += 32) {
      if (first > 0) state = state_of(first + lane);
      const float weight = state.x == cuda::kMinusInfinity ? 0 : cuda::exp2_fast(state.x - top);  // of piece first + lane
      sum += weight * state.y;
      const int pieces = min(32, cut.pieces - first);
#pragma unroll 4
      for (int n = 0; n < pieces; ++n) {
        const float* from = part(first + n) + 4 + 2 * lane;
        const float of = __shfl_sync(0xffffffffu, weight, n);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (64 * step >= head) continue;
          const float2 o = *reinterpret_cast<const float2*>(from + 64 * step);
          value[step][0] += of * o.x;
          value[step][1] += of * o.y;
        }
      }
    }
    const RowEnd end = end_row(call, u, at, top, warp_sum(sum));
    __syncwarp();  // all have read what the next line overwrites
    if (lane == 0) write_lse(call, at, end.lse);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      if (64 * step < head) write_columns(call, at, 64 * step + 2 * lane, end, value[step]);
  }
  cuda::wait_for_launch_before();  // warps without work too: this launch ends after the other one
}

}  // namespace anyattn::flash::sm80
