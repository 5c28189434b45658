// SPDX-License-Identifier: Apache-2.0
// Checks that several calls share: scale, scratch, cache, LSE, scales, sparse indices. Included by checks.cc and checks_mla.cc
// only. Inline, since they stand on the hot path; texts are made in tensor_check.cc.
#pragma once

#include <cinttypes>

#include "api/tensor_check.h"

namespace anyattn::api {

[[gnu::cold]] int32_t refuse_cache(const Call& call, const anyattn_cache& cache);

inline int32_t check_scale(const Call& call, double softmax_scale) {
  // Infinity times 0 is NaN, so both ends are one compare each.
  if (softmax_scale > 0 && softmax_scale * 0 == 0) [[likely]]
    return ANYATTN_OK;
  return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: softmax_scale is %g; wanted: a finite number above 0",
                           call.expected.who.c_str(), call.function, softmax_scale);
}

inline int32_t check_scratch(const Call& call, const void* scratch) {
  if (reinterpret_cast<uintptr_t>(scratch) % kMemoryAlignment == 0) [[likely]]
    return ANYATTN_OK;
  return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: scratch lies at %p; wanted: a multiple of %" PRIu64,
                           call.expected.who.c_str(), call.function, scratch, kMemoryAlignment);
}

inline int32_t check_ready(const Call& call, const PartState& part) {
  if (part.is_ready) [[likely]]
    return ANYATTN_OK;
  return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT,
                           "%s: %s: this part has no batch (never updated, or the last update failed); call update first",
                           call.expected.who.c_str(), call.function);
}

inline int32_t check_cache(const Call& call, const anyattn_cache* cache) {
  const Expected& expected = call.expected;
  if (!expected.is_paged) [[unlikely]]
    return cache ? refuse_surplus(call, "cache", "paged keys") : ANYATTN_OK;
  if (!cache) [[unlikely]]
    return refuse_missing(call, "cache", "paged keys");
  if (cache->struct_size >= ANYATTN_CACHE_SIZE && cache->spec && cache->spec->digest == expected.spec_digest && cache->base &&
      reinterpret_cast<uintptr_t>(cache->base) % kMemoryAlignment == 0 &&
      cache->block_stride_bytes >= expected.spec_block_bytes && cache->block_stride_bytes % expected.spec_alignment == 0)
      [[likely]]
    return ANYATTN_OK;
  return refuse_cache(call, *cache);
}

inline int32_t check_lse(const Call& call, const anyattn_tensor& lse, uint32_t lse_base, int64_t num_tokens) {
  if (!is_given(lse)) return ANYATTN_OK;
  const Expected& expected = call.expected;
  if (!expected.has(ANYATTN_FEATURE_LSE)) return refuse_surplus(call, "lse", "lse");
  const bool is_one_base = lse_base == ANYATTN_LSE_NATURAL || lse_base == ANYATTN_LSE_BASE2;
  if (!is_one_base || (lse_base & expected.lse_bases) == 0) {
    return anyattn_error_set(call.error, ANYATTN_INVALID_ARGUMENT, "%s: %s: lse_base is %u; %s writes:%s%s",
                             expected.who.c_str(), call.function, lse_base, expected.backend.c_str(),
                             (expected.lse_bases & ANYATTN_LSE_NATURAL) != 0 ? " 1 (natural)" : "",
                             (expected.lse_bases & ANYATTN_LSE_BASE2) != 0 ? " 2 (base 2)" : "");
  }
  return check_tensor(call, "lse", lse, ANYATTN_DTYPE_FLOAT32, {num_tokens, expected.num_q_heads});
}

// k_scale and v_scale: one value, or with PER_HEAD one for each kv head.
inline int32_t check_kv_scale(const Call& call, const char* name, const anyattn_tensor& scale) {
  const Expected& expected = call.expected;
  const bool per_head = expected.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  const bool is_wanted = per_head || expected.has(ANYATTN_FEATURE_KV_SCALES);
  if (const int32_t status = check_presence(call, name, scale, is_wanted, "kv_scales or kv_scales_per_head")) return status;
  if (!is_wanted) [[likely]]
    return ANYATTN_OK;
  return check_tensor(call, name, scale, ANYATTN_DTYPE_FLOAT32, {per_head ? expected.num_kv_heads : 1});
}

inline int32_t check_q_scale(const Call& call, const anyattn_tensor& scale) {
  const Expected& expected = call.expected;
  const bool is_wanted = expected.has(ANYATTN_FEATURE_QUANTISED_QUERY);
  if (const int32_t status = check_presence(call, "q_scale", scale, is_wanted, "quantised_query")) return status;
  if (!is_wanted) [[likely]]
    return ANYATTN_OK;
  const bool per_head = scale.ndim == 1 && scale.shape && scale.shape[0] == expected.num_kv_heads;
  return check_tensor(call, "q_scale", scale, ANYATTN_DTYPE_FLOAT32, {per_head ? expected.num_kv_heads : 1});
}

inline int32_t check_sparse(const Call& call, const anyattn_tensor& indices, int64_t num_tokens) {
  const bool is_wanted = call.expected.has(ANYATTN_FEATURE_SPARSE_TOPK);
  if (const int32_t status = check_presence(call, "sparse_indices", indices, is_wanted, "sparse_topk")) return status;
  if (!is_wanted) [[likely]]
    return ANYATTN_OK;
  return check_tensor(call, "sparse_indices", indices, ANYATTN_DTYPE_INT32, {num_tokens, call.expected.top_k});
}

}  // namespace anyattn::api
