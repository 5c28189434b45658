// SPDX-License-Identifier: Apache-2.0
// wgmma: matrix products of a warp group (4 warps, 64 rows) with float32 sums in registers (sm_90a).
// Included by kernels. Shapes m64 n{64, 96, 128} k16 for fp16 and bf16, m64 n{96, 128} k32 for e4m3; A from shared memory or registers, B from shared memory.
//
// Shared operands lie in rows of 128 bytes under the copy engine's 128-byte swizzle, 8 rows an atom of 1024 bytes, atoms aligned.
// Accumulator fragment: thread t of a warp w holds d[4j + e]: row 16 w + t / 4 + 8 (e / 2), column 8 j + 2 (t % 4) + e % 2.
// A in registers has the fragment of mma.m16n8k16: a packed pair each of (row, row + 8) x (columns 0..7, 8..15).
// Order: fence, products, commit, wait; nobody touches registers of a product between fence and wait.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda_common/mbarrier.cuh"

namespace anyattn::cuda {

// lead_bytes: from one 64-column chunk to the next where the operand is stored along its other dimension (V), else unused;
// stride_bytes: from one 8-row atom to the next. Added to it, a byte offset / 16 moves the operand.
__device__ __forceinline__ uint64_t operand(uint32_t shared, uint32_t lead_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>((shared & 0x3ffff) >> 4) | static_cast<uint64_t>(lead_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>  // returns when at most so many committed groups are under way
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler moves no use of these registers across.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// d = a . b^T + (accumulate ? d : 0), a [64, 16] and b [n, 16] both along k in shared memory: ss.
// The same with a in registers: rs; b [16, n] along n in shared memory where kAlongN is 1.
template <class Element, int kN>
struct Wgmma;
#define ANYATTN_ACC_TEXT_64                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ANYATTN_ACC_TEXT_96                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define ANYATTN_ACC_TEXT_128                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ANYATTN_ACC_8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ANYATTN_ACC_16(i) ANYATTN_ACC_8(i), ANYATTN_ACC_8(i + 8)
#define ANYATTN_ACC_64 ANYATTN_ACC_16(0), ANYATTN_ACC_16(16)
#define ANYATTN_ACC_96 ANYATTN_ACC_64, ANYATTN_ACC_16(32)
#define ANYATTN_ACC_128 ANYATTN_ACC_96, ANYATTN_ACC_16(48)

// c0 to c6: the operands after the n / 2 accumulators.
#define ANYATTN_WGMMA(Element, type, n, c0, c1, c2, c3, c4, c5, c6)                                                           \
  template <>                                                                                                                 \
  struct Wgmma<Element, n> {                                                                                                  \
    __device__ static __forceinline__ void ss(float (&d)[n / 2], uint64_t a, uint64_t b, int accumulate) {                    \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type      \
                   "." type " {" ANYATTN_ACC_TEXT_##n "}, %" #c0 ", %" #c1 ", p, 1, 1, 0, 0;\n}"                              \
                   : ANYATTN_ACC_##n                                                                                          \
                   : "l"(a), "l"(b), "r"(accumulate));                                                                        \
    }                                                                                                                         \
    template <int kAlongN>                                                                                                    \
    __device__ static __forceinline__ void rs(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {        \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type      \
                   "." type " {" ANYATTN_ACC_TEXT_##n "}, {%" #c0 ", %" #c1 ", %" #c2 ", %" #c3 "}, %" #c4 ", p, 1, 1, %" #c6 \
                                                      ";\n}"                                                                  \
                   : ANYATTN_ACC_##n                                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kAlongN));                      \
    }                                                                                                                         \
  };
ANYATTN_WGMMA(__half, "f16", 64, 32, 33, 34, 35, 36, 37, 38)
ANYATTN_WGMMA(__nv_bfloat16, "bf16", 64, 32, 33, 34, 35, 36, 37, 38)
ANYATTN_WGMMA(__half, "f16", 96, 48, 49, 50, 51, 52, 53, 54)
ANYATTN_WGMMA(__nv_bfloat16, "bf16", 96, 48, 49, 50, 51, 52, 53, 54)
ANYATTN_WGMMA(__half, "f16", 128, 64, 65, 66, 67, 68, 69, 70)
ANYATTN_WGMMA(__nv_bfloat16, "bf16", 128, 64, 65, 66, 67, 68, 69, 70)

// Likewise of 8-bit elements, a [64, 32]; b [n, 32] lies along k always.
#define ANYATTN_WGMMA_CODES(Element, type, n, c0, c1, c2, c3, c4, c5)                                                      \
  template <>                                                                                                              \
  struct Wgmma<Element, n> {                                                                                               \
    __device__ static __forceinline__ void ss(float (&d)[n / 2], uint64_t a, uint64_t b, int accumulate) {                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k32.f32." type   \
                   "." type " {" ANYATTN_ACC_TEXT_##n "}, %" #c0 ", %" #c1 ", p, 1, 1;\n}"                                 \
                   : ANYATTN_ACC_##n                                                                                       \
                   : "l"(a), "l"(b), "r"(accumulate));                                                                     \
    }                                                                                                                      \
    __device__ static __forceinline__ void rs(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {     \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k32.f32." type   \
                   "." type " {" ANYATTN_ACC_TEXT_##n "}, {%" #c0 ", %" #c1 ", %" #c2 ", %" #c3 "}, %" #c4 ", p, 1, 1;\n}" \
                   : ANYATTN_ACC_##n                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                                 \
    }                                                                                                                      \
  };
ANYATTN_WGMMA_CODES(__nv_fp8_e4m3, "e4m3", 96, 48, 49, 50, 51, 52, 53)
ANYATTN_WGMMA_CODES(__nv_fp8_e4m3, "e4m3", 128, 64, 65, 66, 67, 68, 69)

#undef ANYATTN_WGMMA_CODES
#undef ANYATTN_WGMMA

}  // namespace anyattn::cuda
