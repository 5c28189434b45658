// SPDX-License-Identifier: Apache-2.0
// Copies of a box of a tensor into shared memory by the copy engine (sm_90), told to an Mbarrier when they have landed.
// Included by kernels. The tensor map is made by tensor_map.h and passed as a __grid_constant__ parameter.
// Elements of a box outside the tensor become 0 and count as bytes all the same; coordinates are innermost first, in elements.
#pragma once

#include <cuda.h>

#include "cuda_common/mbarrier.cuh"

namespace anyattn::cuda {

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}

__device__ __forceinline__ void load_box(const CUtensorMap& map, void* to, Mbarrier& done, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&done.word)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void load_box(const CUtensorMap& map, void* to, Mbarrier& done, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&done.word)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ __forceinline__ void load_box(const CUtensorMap& map, void* to, Mbarrier& done, int x, int y, int z, int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&done.word)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

}  // namespace anyattn::cuda
