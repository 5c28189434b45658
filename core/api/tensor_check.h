// SPDX-License-Identifier: Apache-2.0
// One tensor against what a group expects of it: inline compares, texts out of line. Included by checks*.cc only.
#pragma once

#include <cstdint>

#include "anyattn/util.h"
#include "api/checks.h"

namespace anyattn::api {

// A call under check: whose, which function, where the text goes.
struct Call {
  const Expected& expected;
  const char* function;
  anyattn_error* error;
};

constexpr uint64_t kTensorAlignment = 16;
constexpr uint64_t kMemoryAlignment = 256;
constexpr int64_t kAnySize = -1;

inline bool is_given(const anyattn_tensor& tensor) { return tensor.data != nullptr || tensor.ndim != 0; }

// Says which property of `tensor` differs from the wish. dtype ANYATTN_DTYPE_NONE: any.
[[gnu::cold]] int32_t refuse_tensor(const Call& call, const char* name, const anyattn_tensor& tensor, uint32_t dtype,
                                    const int64_t* dims, int ndim);
[[gnu::cold]] int32_t refuse_missing(const Call& call, const char* name, const char* feature);
[[gnu::cold]] int32_t refuse_surplus(const Call& call, const char* name, const char* feature);

// Offsets [num_reqs + 1] that the host can read: begin with 0, never fall, at most max_len rows a request and max_rows in all. A
// wrong one would send a kernel outside its tensors.
int32_t check_start_loc(const Call& call, const char* name, const int32_t* start_loc, uint32_t num_reqs, uint32_t max_len,
                        int64_t max_rows);

// ANYATTN_OK where the tensor is there with this dtype and these dims (kAnySize: any) on the group's device.
template <int N>
inline int32_t check_tensor(const Call& call, const char* name, const anyattn_tensor& tensor, uint32_t dtype,
                            const int64_t (&dims)[N]) {
  const Expected& expected = call.expected;
  bool fits = tensor.ndim == N && tensor.device_type == expected.device_kind && tensor.device_id == expected.device_ordinal &&
              tensor.shape && tensor.strides && (dtype == ANYATTN_DTYPE_NONE || anyattn_tensor_dtype(&tensor) == dtype) &&
              (reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset) % kTensorAlignment == 0;
  bool is_empty = false;
  for (int i = 0; fits && i < N; ++i) {
    fits = dims[i] == kAnySize ? tensor.shape[i] >= 0 : tensor.shape[i] == dims[i];
    is_empty = is_empty || tensor.shape[i] == 0;
  }
  if (fits && (tensor.data || is_empty)) [[likely]]
    return ANYATTN_OK;
  return refuse_tensor(call, name, tensor, dtype, dims, N);
}

// A tensor that belongs to a feature: wanted exactly where the feature is set. True in *check where it is to be compared.
inline int32_t check_presence(const Call& call, const char* name, const anyattn_tensor& tensor, bool is_wanted,
                              const char* feature) {
  if (is_given(tensor) == is_wanted) [[likely]]
    return ANYATTN_OK;
  return is_wanted ? refuse_missing(call, name, feature) : refuse_surplus(call, name, feature);
}

}  // namespace anyattn::api
