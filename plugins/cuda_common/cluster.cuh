// SPDX-License-Identifier: Apache-2.0
// Clusters of blocks (sm_90): their barrier, and stores into another block's shared memory. Included by kernels that are launched with
// a cluster size. A block that others store into lives until it has seen the bytes; a block that stores may end before they land.
#pragma once

#include "cuda_common/mbarrier.cuh"

namespace anyattn::cuda {

// The barrier of all threads of a cluster, in two halves: every thread calls each once. It orders no memory but barriers that were
// initialised and fenced: a release would wait for all that the block has stored.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Where block `rank` of the cluster holds what this block holds at `address`.
__device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Stores whose bytes the barrier at `barrier`, of the same block as `to`, counts as they land.
__device__ __forceinline__ void store_in(uint32_t to, const float4& value, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void store_in(uint32_t to, const float2& value, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(value.x),
               "f"(value.y), "r"(barrier)
               : "memory");
}

}  // namespace anyattn::cuda
