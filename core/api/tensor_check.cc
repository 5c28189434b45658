// SPDX-License-Identifier: Apache-2.0
#include "api/tensor_check.h"

#include <cinttypes>
#include <string>

#include "api/call_checks.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

// [7, any, 64]
std::string dims_text(const int64_t* dims, int ndim) {
  std::string text = "[";
  for (int i = 0; i < ndim; ++i) {
    if (i > 0) text += ", ";
    text += dims[i] == kAnySize ? "any" : std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace

int32_t refuse_tensor(const Call& call, const char* name, const anyattn_tensor& tensor, uint32_t dtype, const int64_t* dims,
                      int ndim) {
  const Expected& expected = call.expected;
  const char* who = expected.who.c_str();
  const char* function = call.function;
  const std::string wanted = dims_text(dims, ndim);
  if (!is_given(tensor)) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s is missing; wanted: %s", who, function, name,
                             wanted.c_str());
  }
  if (tensor.ndim < 0 || tensor.ndim > 8 || !tensor.shape || !tensor.strides) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT,
                             "%s: %s: %s has ndim %d, shape %s and strides %s; wanted: %s with both arrays present", who,
                             function, name, tensor.ndim, tensor.shape ? "present" : "null",
                             tensor.strides ? "present" : "null", wanted.c_str());
  }
  bool same_dims = tensor.ndim == ndim;
  bool is_empty = false;
  for (int i = 0; i < tensor.ndim; ++i) {
    same_dims = same_dims && (dims[i] == kAnySize ? tensor.shape[i] >= 0 : tensor.shape[i] == dims[i]);
    is_empty = is_empty || tensor.shape[i] == 0;
  }
  if (!same_dims) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s is %s; wanted: %s", who, function, name,
                             dims_text(tensor.shape, tensor.ndim).c_str(), wanted.c_str());
  }
  if (dtype != ANYATTN_DTYPE_NONE && anyattn_tensor_dtype(&tensor) != dtype) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s has dtype %s; wanted: %s", who, function, name,
                             std::string(selector::dtype_name(anyattn_tensor_dtype(&tensor))).c_str(),
                             std::string(selector::dtype_name(dtype)).c_str());
  }
  if (tensor.device_type != expected.device_kind || tensor.device_id != expected.device_ordinal) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT,
                             "%s: %s: %s lies on device type %d, id %d; the group's is type %d, id %d", who, function, name,
                             tensor.device_type, tensor.device_id, expected.device_kind, expected.device_ordinal);
  }
  if (!tensor.data && !is_empty) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s is %s with null data", who, function, name,
                             wanted.c_str());
  }
  return anyattn_error_set(
      call.error, ANYATTN_INVALID_ARGUMENT,
      "%s: %s: %s lies at 0x%" PRIxPTR ", byte_offset counted; wanted: a multiple of %" PRIu64, who, function, name,
      reinterpret_cast<uintptr_t>(tensor.data) + static_cast<uintptr_t>(tensor.byte_offset), kTensorAlignment);
}

int32_t refuse_missing(const Call& call, const char* name, const char* feature) {
  return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s is missing; this group's problem wants it: %s",
                           call.expected.who.c_str(), call.function, name, feature);
}

int32_t refuse_surplus(const Call& call, const char* name, const char* feature) {
  return anyattn_error_set(
      call.error, ANYATTN_INVALID_ARGUMENT,
      "%s: %s: %s is given, but this group's problem does not carry %s; leave it unset or make the group with it",
      call.expected.who.c_str(), call.function, name, feature);
}

int32_t check_start_loc(const Call& call, const char* name, const int32_t* start_loc, uint32_t num_reqs, uint32_t max_len,
                        int64_t max_rows) {
  const char* who = call.expected.who.c_str();
  if (start_loc[0] != 0) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s begins with %d; it begins with 0", who,
                             call.function, name, start_loc[0]);
  }
  for (uint32_t i = 0; i < num_reqs; ++i) {
    const int64_t rows = static_cast<int64_t>(start_loc[i + 1]) - start_loc[i];
    if (rows < 0 || rows > max_len) {
      return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT,
                               "%s: %s: %s gives request %u %" PRId64 " rows; allowed: 0 to %u", who, call.function, name, i,
                               rows, max_len);
    }
  }
  if (start_loc[num_reqs] <= max_rows) return ANYATTN_OK;
  return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: %s ends at %d; there are %" PRId64 " rows", who,
                           call.function, name, start_loc[num_reqs], max_rows);
}

int32_t refuse_cache(const Call& call, const anyattn_cache& cache) {
  const Expected& expected = call.expected;
  const char* who = expected.who.c_str();
  if (cache.struct_size < ANYATTN_CACHE_SIZE) {
    return anyattn_error_set(call.error, ANYATTN_ABI_MISMATCH, "%s: %s: cache.struct_size is %u; wanted: %u or more", who,
                             call.function, cache.struct_size, ANYATTN_CACHE_SIZE);
  }
  if (!cache.spec) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: cache.spec is null; wanted: the group's spec", who,
                             call.function);
  }
  if (cache.spec->digest != expected.spec_digest) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT,
                             "%s: %s: the cache was laid out by another spec (%s, digest %016" PRIx64
                             "); the group's digest is "
                             "%016" PRIx64 "; make the pool from anyattn_group_info.spec of this group",
                             who, call.function, cache.spec->name ? cache.spec->name : "unnamed", cache.spec->digest,
                             expected.spec_digest);
  }
  if (!cache.base || reinterpret_cast<uintptr_t>(cache.base) % kMemoryAlignment != 0) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: cache.base is %p; wanted: a multiple of %" PRIu64,
                             who, call.function, cache.base, kMemoryAlignment);
  }
  return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT,
                           "%s: %s: cache.block_stride_bytes is %" PRIu64 "; wanted: %" PRIu64 " or more and a multiple of %u",
                           who, call.function, cache.block_stride_bytes, expected.spec_block_bytes, expected.spec_alignment);
}

}  // namespace anyattn::api
