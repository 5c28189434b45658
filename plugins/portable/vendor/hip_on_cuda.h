// SPDX-License-Identifier: Apache-2.0
// AMD's words on NVIDIA's: what hip.h takes from the compiler, for a wave of 32 lanes. So its text runs on a device of NVIDIA.
// Included instead of hip.h by a plugin of the tests; no part of any other.
#pragma once

#undef __grid_constant__
#define __builtin_amdgcn_workgroup_id_x() blockIdx.x
#define __builtin_amdgcn_workitem_id_x() threadIdx.x
#define __builtin_amdgcn_workgroup_size_x() blockDim.x
#define __builtin_amdgcn_grid_size_x() (gridDim.x * blockDim.x)
#define __builtin_amdgcn_fence(order, scope) __threadfence_block()
#define __builtin_amdgcn_s_barrier() __syncthreads()
#define __builtin_amdgcn_wave_barrier() __syncwarp()
#define __builtin_amdgcn_mbcnt_lo(mask, sum) ((sum) + threadIdx.x % 32)
#define __builtin_amdgcn_mbcnt_hi(mask, sum) (sum)
#define __builtin_amdgcn_ds_bpermute(byte_of_lane, value) __shfl_sync(0xffffffffu, value, (byte_of_lane) / 4 & 31)
#define __builtin_amdgcn_exp2f exp2f
#define __builtin_amdgcn_logf log2f
#define __builtin_fmaxf fmaxf
#define __builtin_sqrtf sqrtf
#define __builtin_inff() __int_as_float(0x7f800000)

struct HalfOnCuda {
  unsigned short bits;
  HalfOnCuda() = default;
  __device__ explicit HalfOnCuda(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
#define _Float16 HalfOnCuda
#define AA_SCALAR_ALONE  // no matrix core of AMD's here

#include "hip.h"
