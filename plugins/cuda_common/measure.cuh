// SPDX-License-Identifier: Apache-2.0
// What programs of measure/ share: a failed CUDA call ends them, random values, a median, what stands between two calls. Included by those programs alone.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(x)                                                                        \
  do {                                                                                  \
    const cudaError_t code = (x);                                                       \
    if (code != cudaSuccess) {                                                          \
      std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(code)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

namespace anyattn::measure {

__device__ inline uint32_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 16);
}

// N(0, 1) by two numbers (Box and Muller): the same for the same two.
__device__ inline float normal(uint64_t first, uint64_t second) {
  const float u = (mix(first) % 16777216 + 1) / 16777217.0f, v = mix(second) % 16777216 / 16777216.0f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

// Not of none.
template <class T>
T median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// 8192 x 8192 matrix-vector product: what stands between two calls of a model.
__global__ void multiply(const uint4* weights, const float* x, float* y) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
#pragma unroll 8
  for (int i = lane; i < 1024; i += 32) {
    const uint4 w = __ldcs(weights + row * 1024 + i);
    const float4 low = reinterpret_cast<const float4*>(x)[2 * i], high = reinterpret_cast<const float4*>(x)[2 * i + 1];
    sum += __uint_as_float(w.x << 16) * low.x + __uint_as_float(w.x & 0xffff0000u) * low.y;
    sum += __uint_as_float(w.y << 16) * low.z + __uint_as_float(w.y & 0xffff0000u) * low.w;
    sum += __uint_as_float(w.z << 16) * high.x + __uint_as_float(w.z & 0xffff0000u) * high.y;
    sum += __uint_as_float(w.w << 16) * high.z + __uint_as_float(w.w & 0xffff0000u) * high.w;
  }
  for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (lane == 0) y[row] = sum;
}

}  // namespace anyattn::measure
