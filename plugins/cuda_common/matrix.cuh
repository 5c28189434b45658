// SPDX-License-Identifier: Apache-2.0
// Loads and stores of four 8x8 matrices of 16-bit elements, or of pairs of codes, between a warp's registers and shared memory (sm_75;
// stores sm_90). Included by kernels. Lane l gives the address of row l%8 of matrix l/8 and holds columns 2 (l%4), 2 (l%4) + 1 of row l/4.
#pragma once

#include <cstdint>

#include "cuda_common/shared.cuh"

namespace anyattn::cuda {

__device__ __forceinline__ void load_matrix(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_matrix(uint32_t (&to)[4], const void* row) { load_matrix(to, shared_address(row)); }

__device__ __forceinline__ void load_matrix_transposed(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_matrix_transposed(uint32_t (&to)[4], const void* row) {
  load_matrix_transposed(to, shared_address(row));
}

__device__ __forceinline__ void store_matrix(uint32_t row, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}

}  // namespace anyattn::cuda
