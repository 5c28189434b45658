// SPDX-License-Identifier: Apache-2.0
// Joins the pieces of units that were cut between blocks. Included by launch.cu. Source: arXiv:2311.01282.
#pragma once

#include "sm80/rows.cuh"

namespace anyattn::flash::sm80 {

inline constexpr int kMergeThreads = 128;

// Blocks (b, share): rows share, share + shares, ... of the unit that begins in block b of the attention launch and goes on in the
// next. Launched so that it may begin while that launch drains (sm_90).
__global__ void __launch_bounds__(kMergeThreads) merge_parts(const __grid_constant__ Call call, int rows, int head) {
  const Place own = call.work.places[blockIdx.x], next = call.work.places[blockIdx.x + 1];
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // blocks without work too: this launch ends after the other one
#endif
  if (own.merge_last == 0) return;
  const Unit u = unit_of(call, *call.f.kept, next.first, next.head, 0, 0);
  const int count = own.merge_last - static_cast<int>(blockIdx.x) + 1, floats = head + 4;
  const auto part = [&](int i, int row) {  // a unit's first piece stands in its block's second place
    return call.part(2 * (static_cast<int64_t>(blockIdx.x) + i) + (i == 0), rows * floats) + row * floats;
  };
  for (int row = blockIdx.y; row < u.tokens * u.heads; row += gridDim.y) {
    if (!is_written(call, u, row)) continue;
    float top = cuda::kMinusInfinity, sum = 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i) top = fmaxf(top, part(i, row)[0]);
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      const float2 state = *reinterpret_cast<const float2*>(part(i, row));
      sum += state.x == cuda::kMinusInfinity ? 0 : state.y * cuda::exp2_fast(state.x - top);
    }
    const RowEnd end = end_row(call, u, row, top, sum);
    if (call.takes) __syncthreads();  // all have read what the next line overwrites
    if (threadIdx.x == 0) write_lse(call, u, row, end.lse);
    for (int column = 2 * threadIdx.x; column < call.head_size_v; column += 2 * kMergeThreads) {
      float value[2] = {0, 0};
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const float* from = part(i, row);
        const float weight = from[0] == cuda::kMinusInfinity ? 0 : cuda::exp2_fast(from[0] - top);
        const float2 o = *reinterpret_cast<const float2*>(from + 4 + column);
        value[0] += weight * o.x;
        value[1] += weight * o.y;
      }
      write_two(call, u, row, column, end, value[0], value[1]);
    }
  }
}

}  // namespace anyattn::flash::sm80
