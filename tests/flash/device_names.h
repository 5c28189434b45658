// SPDX-License-Identifier: Apache-2.0
// What device functions of plugins/flash_cuda want of nvcc, so that tests run them on the host. Included before their headers; one thread
// alone, so no function that waits for others may be called.
#pragma once

#include <algorithm>
#include <cstdint>

#define __device__
#define __forceinline__ inline
#define __shared__ static
namespace {
using std::max;
using std::min;
[[maybe_unused]] struct {
  int x;
} threadIdx;
[[maybe_unused]] int64_t __shfl_up_sync(uint32_t, int64_t value, int) { return value; }
[[maybe_unused]] void __syncthreads() {}
[[maybe_unused]] uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
}  // namespace
