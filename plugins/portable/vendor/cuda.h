// SPDX-License-Identifier: Apache-2.0
// NVIDIA's words: threads, shared memory, asynchronous copies (sm_80), matrix instructions. Included before the kernels.
// Compiled at run time without any header of the toolkit.
#pragma once

#define AA_FN __device__ __forceinline__
#define AA_SHARED __shared__
#define AA_TABLE __constant__ const
#define AA_PROGRAM ((int)blockIdx.x)
#define kInfinity __int_as_float(0x7f800000)
#define AA_UNROLL _Pragma("unroll")
#define AA_UNROLL_COPIES AA_UNROLL
#define AA_UNROLL_FOUR _Pragma("unroll 4")

AA_FN int thread() { return (int)threadIdx.x; }
AA_FN int num_threads() { return (int)blockDim.x; }
#if AA_PART == 0
constexpr int kMultipliers = is_fed(tile) ? 32 * tile.warps_m * tile.warps_n : 0;  // those that fetch keys go their own way
#else
constexpr int kMultipliers = 0;
#endif
AA_FN void barrier() {
  if (kMultipliers)
    asm volatile("bar.sync 1, %0;" ::"n"(kMultipliers) : "memory");
  else
    __syncthreads();
}
AA_FN void warp_barrier() { __syncwarp(); }
// Programmatic launch (sm_90): the merge starts while attend drains, and waits here for what attend wrote.
AA_FN void let_next_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
AA_FN void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
AA_FN float from_lane_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AA_FN int from_lane_below(int x, int step) { return __shfl_up_sync(0xffffffffu, x, step); }

// Sixteen-bit kinds take the hardware's approximation (2 ulp of float32), float32 the exact function.
AA_FN float exp2_of(float x) {
  if (cfg.kind == kF32) return exp2f(x);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
AA_FN float larger(float a, float b) { return fmaxf(a, b); }
AA_FN float log2_of(float x) { return log2f(x); }
AA_FN float tanh_of(float x) { return tanhf(x); }
AA_FN float sqrt_of(float x) { return sqrtf(x); }
AA_FN double exp_of(double x) { return expf((float)x); }
AA_FN double log_of(double x) { return logf((float)x); }
AA_FN unsigned bits_of(float x) { return __float_as_uint(x); }
AA_FN float float_of_bits(unsigned x) { return __uint_as_float(x); }

AA_FN float float_of_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
AA_FN float float_of_f16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
AA_FN unsigned short bf16_of(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
AA_FN unsigned short f16_of(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

typedef unsigned SharedAt;
AA_FN SharedAt shared_at(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
template <int kBytes>
AA_FN void load_chunk(SharedAt to, const char* base, int64_t offset) {
  if (kBytes == 16)  // where the offset is negative nothing is read and zeros are written
    asm volatile(
        "{\n.reg .pred none;\nsetp.lt.s32 none, %2, 0;\n"
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, none;\n}" ::"r"(to),
        "l"(base + offset), "r"((int)(offset >> 32)));
  else
    asm volatile(
        "{\n.reg .pred none;\nsetp.lt.s32 none, %2, 0;\n"
        "cp.async.ca.shared.global.L2::128B [%0], [%1], %3, none;\n}" ::"r"(to),
        "l"(base + offset), "r"((int)(offset >> 32)), "n"(kBytes < 4 ? 4 : kBytes));
}
AA_FN void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
AA_FN void commit_loads() { asm volatile("cp.async.commit_group;" ::: "memory"); }
AA_FN void wait_loads(int pending) {
  if (pending == 0) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (pending == 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
  if (pending == 2) asm volatile("cp.async.wait_group 2;" ::: "memory");
  if (pending == 3) asm volatile("cp.async.wait_group 3;" ::: "memory");
  if (tile.groups) fence_shared();  // wgmma reads what was copied
}
template <class Tiles, class Scores>
AA_FN void wait_scores(const Tiles& tiles, Scores& own);  // groups.h
template <class Accumulator>
AA_FN void settle(Accumulator& o);

// 8-bit floats become float16 in one instruction. Then q and the probabilities are float16 too, scaled so that its range
// takes them: q's rows each by a power of two, the probabilities by 2^kLift (flat rows: floats.h).
constexpr bool kFloat8 =
    cfg.rows == kRowsE4M3 || cfg.rows == kRowsE5M2 || cfg.rows == kRowsE4M3Scaled || cfg.rows == kRowsRecord;
#if __CUDA_ARCH__ >= 890
constexpr bool kConverts = cfg.matrix && kFloat8 && cfg.kind != kF32 && (tile.share || tile.groups || !cfg.latent) &&
                           (cfg.kind == kF16 || cfg.rows == kRowsE4M3 || cfg.rows == kRowsE5M2 ||
                            is_flat(cfg, tile));  // other scales have bfloat16's range
#else
constexpr bool kConverts = false;
#endif
constexpr bool kWidened = kConverts && (cfg.kind == kBF16 || is_flat(cfg, tile)), kHalf = cfg.kind == kF16 || kWidened;
constexpr float kLift = kConverts && !is_flat(cfg, tile) ? 7 : 0;

#include "simt.h"

struct Four {
  unsigned at[4];
};
AA_FN Four load_matrices(SharedAt row) {
  Four m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.at[0]), "=r"(m.at[1]), "=r"(m.at[2]), "=r"(m.at[3])
               : "r"(row));
  return m;
}
AA_FN Four load_transposed(SharedAt row) {
  Four m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.at[0]), "=r"(m.at[1]), "=r"(m.at[2]), "=r"(m.at[3])
               : "r"(row));
  return m;
}
AA_FN void multiply(float& c0, float& c1, float& c2, float& c3, const Four& a, unsigned b0, unsigned b1) {
  if (!kHalf)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
}
AA_FN unsigned pair_of(float low, float high) {
  unsigned pair;
  if (!kHalf)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

#include "codes.h"
#include "share.h"
