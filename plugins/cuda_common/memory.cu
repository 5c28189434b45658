// SPDX-License-Identifier: Apache-2.0
#include "cuda_common/memory.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "cuda_common/check.h"

namespace anyattn::cuda {
namespace {

constexpr int kThreads = 128;

// Eight elements of 16 bits as codes of value / scale.
__device__ uint2 narrow_e4m3(uint4 elements, uint32_t dtype, float scale) {
  const uint32_t pairs[4] = {elements.x, elements.y, elements.z, elements.w};
  uint32_t codes[2] = {0, 0};
  for (int i = 0; i < 4; ++i) {
    const float2 value = dtype == ANYATTN_DTYPE_BFLOAT16
                             ? __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pairs[i]))
                             : __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
    const float2 scaled{__fdiv_rn(value.x, scale), __fdiv_rn(value.y, scale)};
    codes[i / 2] |= static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3)) << (i % 2 * 16);
  }
  return {codes[0], codes[1]};
}

__global__ void __launch_bounds__(kThreads) store(const __grid_constant__ Store a) {
  const int64_t slot = a.slots[blockIdx.x];
  if (slot < 0 || static_cast<uint64_t>(slot / a.block_size) >= a.num_blocks) return;
  const StoredRows& rows = a.rows[blockIdx.y];
  const char* from = rows.from + blockIdx.x * rows.from_token_bytes;
  char* to = a.base + slot / a.block_size * a.block_bytes + rows.byte_offset + slot % a.block_size * rows.token_bytes;
  const int chunks = rows.head_size / 8;
  for (int i = threadIdx.x; i < rows.heads * chunks; i += kThreads) {
    const int head = i / chunks, chunk = i % chunks;
    const uint4 elements = *reinterpret_cast<const uint4*>(from + head * rows.from_head_bytes + 16 * chunk);
    char* row = to + head * rows.head_bytes;
    if (a.to_e4m3) {
      const float scale = rows.scales ? rows.scales[a.scales_per_head ? head : 0] : 1;
      *reinterpret_cast<uint2*>(row + 8 * chunk) = narrow_e4m3(elements, a.dtype, scale);
    } else {
      *reinterpret_cast<uint4*>(row + 16 * chunk) = elements;
    }
  }
}

__device__ float load_element(uint32_t dtype, const char* row, int element) {
  if (dtype == ANYATTN_DTYPE_BFLOAT16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[element]);
  if (dtype == ANYATTN_DTYPE_FLOAT16) return __half2float(reinterpret_cast<const __half*>(row)[element]);
  return reinterpret_cast<const float*>(row)[element];
}
__device__ void store_element(uint32_t dtype, char* row, int element, float value) {
  if (dtype == ANYATTN_DTYPE_BFLOAT16)
    reinterpret_cast<__nv_bfloat16*>(row)[element] = __float2bfloat16(value);
  else if (dtype == ANYATTN_DTYPE_FLOAT16)
    reinterpret_cast<__half*>(row)[element] = __float2half(value);
  else
    reinterpret_cast<float*>(row)[element] = value;
}

// A warp a row. A part whose lse is -inf (or +inf) is not read. Sums of logarithms in double: 10,000 + ln 2 must keep its digits.
__global__ void __launch_bounds__(kThreads) merge(const __grid_constant__ Merge a) {
  constexpr double kNone = -__builtin_huge_val();
  const int lane = threadIdx.x % 32;
  const int64_t rows = static_cast<int64_t>(a.num_tokens) * a.num_heads;
  for (int64_t row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32; row < rows; row += gridDim.x * (kThreads / 32)) {
    const int64_t token = row / a.num_heads, head = row % a.num_heads;
    const auto lse_of = [&](const State& state) {
      const double lse = state.lse[token * state.lse_token_stride + head * state.lse_head_stride] * state.to_natural;
      return lse == -kNone ? kNone : lse;
    };
    double top = kNone, total = 0;
    for (int i = 0; i < a.num_states; ++i) {
      const double lse = lse_of(a.states[i]);
      if (!(lse <= top)) top = lse;
    }
    for (int i = 0; i < a.num_states; ++i) {
      const double lse = lse_of(a.states[i]);
      total += lse == kNone ? 0 : expf(static_cast<float>(lse - top));
    }
    for (int e = lane; e < a.head_size; e += 32) {
      float value = 0;
      for (int i = 0; i < a.num_states; ++i) {
        const State& state = a.states[i];
        const double lse = lse_of(state);
        if (lse == kNone) continue;
        const float weight = expf(static_cast<float>(lse - top)) / static_cast<float>(total);
        value += weight * load_element(a.dtype, state.out + token * state.token_bytes + head * state.head_bytes, e);
      }
      store_element(a.out_dtype, a.out + token * a.token_bytes + head * a.head_bytes, e, value);
    }
    __syncwarp();  // lse may be one of the parts': every lane has read it
    if (a.lse && lane == 0)
      a.lse[token * a.lse_token_stride + head * a.lse_head_stride] =
          static_cast<float>(top == kNone ? kNone : (top + logf(static_cast<float>(total))) * a.from_natural);
  }
}

}  // namespace

void store_rows(const Store& a, void* stream) {
  if (a.num_tokens == 0) return;
  store<<<dim3(a.num_tokens, 2), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
  check(cudaGetLastError(), "kv_cache_update");
}

void merge_states(const Merge& a, void* stream) {
  const int64_t blocks = (static_cast<int64_t>(a.num_tokens) * a.num_heads + kThreads / 32 - 1) / (kThreads / 32);
  if (blocks == 0) return;
  merge<<<static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
  check(cudaGetLastError(), "merge_states");
}

}  // namespace anyattn::cuda
