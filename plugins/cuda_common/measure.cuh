// SPDX-License-Identifier: Apache-2.0
// What programs of measure/ share: a failed CUDA call ends them, random values, a median. Included by those programs alone.
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

}  // namespace anyattn::measure
