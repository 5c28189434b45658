// SPDX-License-Identifier: Apache-2.0
// AMD's words: groups of 32 lanes whatever the wave's width, plain copies, scalar products; those of matrix cores are in mfma.h.
// Included before the kernels.
// Compiled without any header: builtins of the compiler only, so that an object is one command away.
#pragma once

#ifndef __device__
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(threads, blocks) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#endif
#define __grid_constant__
#ifndef __align__
#define __align__(bytes) __attribute__((aligned(bytes)))
#endif
#define AA_FN __device__ inline __attribute__((always_inline))
#define AA_SHARED __shared__
#define AA_TABLE __attribute__((constant)) const
#define AA_UNROLL _Pragma("unroll")
#define AA_UNROLL_COPIES _Pragma("unroll 4")  // each copy holds registers until it lands
#define AA_UNROLL_FOUR _Pragma("unroll 4")
#define AA_PROGRAM ((int)__builtin_amdgcn_workgroup_id_x())
#define kInfinity __builtin_inff()

AA_FN int thread() { return (int)__builtin_amdgcn_workitem_id_x(); }
AA_FN int num_threads() { return (int)__builtin_amdgcn_workgroup_size_x(); }
AA_FN void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
AA_FN void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
AA_FN void let_next_launch() {}
AA_FN void wait_for_previous() {}

AA_FN unsigned bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
AA_FN float float_of_bits(unsigned x) { return __builtin_bit_cast(float, x); }
AA_FN int wave_lane() { return (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
AA_FN float from_lane_xor(float x, int mask) {
  return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((wave_lane() ^ mask) * 4, (int)bits_of(x)));
}
AA_FN int from_lane_below(int x, int step) { return __builtin_amdgcn_ds_bpermute((wave_lane() - step) * 4, x); }

// The hardware's approximations. LLVM 15 (hiprtc 5.2) has no builtin for them: there the general ones, which care for subnormals.
#if defined(__builtin_amdgcn_exp2f) || __has_builtin(__builtin_amdgcn_exp2f)
AA_FN float exp2_of(float x) { return __builtin_amdgcn_exp2f(x); }
AA_FN float log2_of(float x) { return __builtin_amdgcn_logf(x); }
#else
AA_FN float exp2_of(float x) { return __builtin_exp2f(x); }
AA_FN float log2_of(float x) { return __builtin_log2f(x); }
#endif
AA_FN float larger(float a, float b) { return __builtin_fmaxf(a, b); }
// Near 0 Lambert's continued fraction: the other form loses there the digits that a cap of scores multiplies.
AA_FN float tanh_of(float x) {
  const float y = x * x;
  return y < 0.36f ? x * (945 + y * (105 + y)) / (945 + y * (420 + 15 * y)) : 1 - 2 / (exp2_of(x * 2.88539008177792681f) + 1);
}
AA_FN float sqrt_of(float x) { return __builtin_sqrtf(x); }
AA_FN double exp_of(double x) { return exp2_of((float)x * 1.44269504088896341f); }
AA_FN double log_of(double x) { return log2_of((float)x) * 0.69314718055994531f; }

AA_FN float float_of_bf16(unsigned short bits) { return __builtin_bit_cast(float, (unsigned)bits << 16); }
AA_FN float float_of_f16(unsigned short bits) { return (float)__builtin_bit_cast(_Float16, bits); }
AA_FN unsigned short bf16_of(float x) {
  const unsigned bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(bits >> 16 | 0x40u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
AA_FN unsigned short f16_of(float x) { return __builtin_bit_cast(unsigned short, (_Float16)x); }

struct alignas(16) Quad {
  unsigned at[4];
};
typedef char* SharedAt;
AA_FN SharedAt shared_at(char* at) { return at; }
template <int kBytes>
AA_FN void load_chunk(SharedAt to, const char* base, int64_t offset) {
  if (kBytes == 16) *(Quad*)to = offset < 0 ? Quad{0, 0, 0, 0} : *(const Quad*)(base + offset);
  if (kBytes == 8) *(uint64_t*)to = offset < 0 ? 0 : *(const uint64_t*)(base + offset);
  if (kBytes == 4) *(unsigned*)to = offset < 0 ? 0 : *(const unsigned*)(base + offset);
}
AA_FN void commit_loads() {}
AA_FN void wait_loads(int) {}

// The matrix cores of gfx90a take float16 below 2^-14 for 0: lifted, a probability is one only below 2^-21 of the largest. With
// State's slack of 2^8 it stays below 2^15.
constexpr float kLift = cfg.matrix == 64 && cfg.kind == kF16 ? 7 : 0;
template <class Any, class Scores>
AA_FN void wait_scores(const Any&, Scores&) {}
template <class Any>
AA_FN void settle(Any&) {}
#include "simt.h"

AA_FN void prepare_query(const Tiles& tiles) {
  if (!kRotated) return;
  barrier();
  rotate_query(tiles);
  barrier();
}
AA_FN bool begin_feeding(const Tiles&) { return false; }
AA_FN void part_registers(bool) {}
template <class Any>
AA_FN bool feed_keys(const AttendArgs&, const BatchView&, const Any&, const Tiles&) {
  return false;
}
#ifndef AA_SCALAR_ALONE
#include "mfma.h"
#else
struct QueryOperands {};
AA_FN void keep_query(const Tiles&, QueryOperands&) {}
AA_FN void wave_qk(const Tiles&, int, const QueryOperands&, Scores&) {}
AA_FN void wave_pv(const Tiles&, int, int, const SeenScores&, Accumulator&) {}
#endif
AA_FN void share_weights(const Tiles&, const SeenScores&, const float (&)[kSeenRows], Accumulator&) {}
AA_FN void dot_qk(const Tiles& tiles, int stage, const QueryOperands& q, Scores& s) {
  if constexpr (kWave)
    wave_qk(tiles, stage, q, s);
  else
    scalar_qk(tiles, stage, s);
}
AA_FN void dot_pv(const Tiles& tiles, int stage, int column, const SeenScores& p, Accumulator& o) {
  if constexpr (kWave)
    wave_pv(tiles, stage, column, p, o);
  else
    scalar_pv(tiles, stage, column, p, o);
}
