// SPDX-License-Identifier: Apache-2.0
// Blocks that meet in global memory: who comes last goes on with what the others have stored. Included by kernels.
#pragma once

#include <cstdint>

namespace anyattn::cuda {

// The number of tickets taken before, by one thread of a block. Hands on what the block stored before its last barrier, and takes over what
// holders of earlier tickets did: the barrier after this gives it to the whole block. Weaker than __threadfence, which also orders the
// block with everybody else.
__device__ __forceinline__ uint32_t take_ticket(uint32_t* tickets) {
  uint32_t ticket;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(tickets) : "memory");
  return ticket;
}

}  // namespace anyattn::cuda
