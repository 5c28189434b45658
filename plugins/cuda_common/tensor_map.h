// SPDX-License-Identifier: Apache-2.0
// Tensor maps of the copy engine, made on the host. The driver's function comes through the runtime: nothing links libcuda.
// Included by host code of kernel families. A map holds the addresses of one call and travels as a kernel parameter.
#pragma once

#include <anyattn/types.h>
#include <cuda.h>
#include <cuda_runtime.h>

#include <anyattn/error.hpp>
#include <cstdint>
#include <string>

namespace anyattn::cuda {

// Innermost dimension first, its elements dense.
struct BoxedTensor {
  const void* data;     // device, 16-byte aligned
  uint32_t rank;        // 3 to 5
  uint64_t dims[5];     // at least 1 each
  uint64_t strides[4];  // strides[i]: bytes from one element of dimension i + 1 to the next, a multiple of 16
  uint32_t box[5];      // up to 256 each; box[0]: 32, 64 or 128 bytes
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;  // what a miss fetches into L2
};

inline auto tensor_map_encoder() {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (code != cudaSuccess || result != cudaDriverEntryPointSuccess)
      throw Error(ANYATTN_UNSUPPORTED, "the driver has no cuTensorMapEncodeTiled: ", cudaGetErrorString(code),
                  "; a driver for CUDA 12.0 or newer is needed");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return encode;
}

// The sentence where the driver takes no such tensor.
inline std::string tensor_map_refusal(const BoxedTensor& tensor) {
  std::string strides;
  for (uint32_t i = 0; i + 1 < tensor.rank; ++i)
    strides += text(i == 0 ? "" : i + 2 < tensor.rank ? ", " : " and ", static_cast<int64_t>(tensor.strides[i]));
  return text("the copy engine takes no tensor at ", reinterpret_cast<uint64_t>(tensor.data), " with strides of ", strides,
              " bytes; allowed: addresses and strides that are multiples of 16 bytes, strides from 0 to below 2^40");
}

// Rows of box[0] elements under the swizzle of their width, zeros outside the tensor. Throws anyattn::Error where the driver refuses.
inline CUtensorMap make_tensor_map(const BoxedTensor& tensor, CUtensorMapDataType type) {
  CUtensorMap map;
  const uint32_t dense[5] = {1, 1, 1, 1, 1}, row = tensor.box[0] * (type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2);
  const CUtensorMapSwizzle swizzle = row == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
  const CUresult code =
      tensor_map_encoder()(&map, type, tensor.rank, const_cast<void*>(tensor.data), tensor.dims, tensor.strides, tensor.box,
                           dense, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, tensor.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) throw Error(ANYATTN_INVALID_ARGUMENT, tensor_map_refusal(tensor));
  return map;
}

inline CUtensorMap make_tensor_map(const BoxedTensor& tensor, bool bfloat16) {
  return make_tensor_map(tensor, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
}

}  // namespace anyattn::cuda
