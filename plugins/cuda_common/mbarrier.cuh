// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that threads and the copy engine arrive at (sm_90), and named barriers of a block.
// Included by kernels. A wait is on a parity: it passes once the phase of that parity is over.
#pragma once

#include <cstdint>

#include "cuda_common/shared.cuh"

namespace anyattn::cuda {

// One phase of a barrier ends after `arrivals` arrivals and after every byte that expect() announced.
struct Mbarrier {
  uint64_t word;

  __device__ __forceinline__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)), "r"(arrivals) : "memory");
  }
  // One arrival, and `bytes` more to come by copies that name this barrier.
  __device__ __forceinline__ void expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ void arrive() { arrive(shared_address(&word)); }
  __device__ __forceinline__ void wait(uint32_t parity) { wait(shared_address(&word), parity); }

  // The same for a barrier that is known by its address.
  __device__ static __forceinline__ void arrive(uint32_t address) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }
  __device__ static __forceinline__ void wait(uint32_t address, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(address),
        "r"(parity)
        : "memory");
  }
};

// After init, before another thread or the copy engine uses the barriers; a __syncthreads follows.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One lane of a warp that is here as a whole: the compiler sees that there is one, and takes its addresses as they are.
__device__ __forceinline__ bool one_lane() {
  uint32_t chosen;
  asm volatile(
      "{\n.reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n}"
      : "=r"(chosen));
  return chosen != 0;
}

// Ordinary stores to shared memory become visible to the copy engine and to wgmma; each writing thread, before the barrier.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Named barriers 1 to 15 of a block (0 is __syncthreads'): sync waits for `threads` threads, those of arrive counted.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Registers a thread of this warp group, a multiple of 8. All four warps of the group call it, once.
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace anyattn::cuda
