// SPDX-License-Identifier: Apache-2.0
// What both backends of the plugin do alike: refusals of sizes, batches, blocks of the cache, requests of rows.
#pragma once

#include <string>

#include "anyattn/backend.hpp"
#include "anyattn/kv_cache.hpp"
#include "anyattn/tensor_view.hpp"
#include "row.h"

namespace naive {

// Copies the batch; its arrays stay where they are until the last call that uses the metadata.
template <class Impl>
struct BatchMetadata {
  BatchMetadata(Impl&, const anyattn_limits&, uint32_t, void*, void*) {}
  void update(const anyattn_batch& given, void*) { batch = given; }
  anyattn_batch batch{};
};

inline bool has(const anyattn_problem& problem, uint32_t feature) { return anyattn_problem_has(&problem, feature) != 0; }

inline uint64_t bits(std::initializer_list<uint32_t> features) {
  uint64_t all = 0;
  for (uint32_t feature : features) all |= uint64_t{1} << feature;
  return all;
}

inline void refuse_common(const anyattn_problem& p, anyattn::Reasons& reasons) {
  const std::string dtype = anyattn::dtype_name(p.q_dtype);
  const bool q_codes = has(p, ANYATTN_FEATURE_QUANTISED_QUERY);
  if (q_codes ? p.q_dtype != ANYATTN_DTYPE_FLOAT8_E4M3FN : anyattn::dtype_of_float_name(dtype) == ANYATTN_DTYPE_NONE) {
    reasons.add(ANYATTN_REASON_DTYPE, "q_dtype", dtype,
                q_codes ? "float8_e4m3fn with quantised_query" : "float32, float16, bfloat16");
  }
  const std::string out_dtype = anyattn::dtype_name(p.out_dtype);
  const bool codes = has(p, ANYATTN_FEATURE_OUT_SCALE);
  if (codes ? p.out_dtype != ANYATTN_DTYPE_FLOAT8_E4M3FN : anyattn::dtype_of_float_name(out_dtype) == ANYATTN_DTYPE_NONE) {
    reasons.add(ANYATTN_REASON_DTYPE, "out_dtype", out_dtype,
                codes ? "float8_e4m3fn with out_scale" : "float32, float16, bfloat16");
  }
  if (p.num_kv_heads == 0 || p.num_q_heads % p.num_kv_heads != 0) {
    reasons.add(ANYATTN_REASON_HEADS, "num_q_heads", std::to_string(p.num_q_heads), "a multiple of num_kv_heads");
  }
  if (p.head_size == 0 || p.head_size > kMaxHeadSize || p.head_size_v == 0 || p.head_size_v > kMaxHeadSize) {
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size", std::to_string(p.head_size), "1 to 1024");
  }
}

inline void fill_report(const anyattn_problem& p, anyattn_support_report& report) {
  report.block_size = p.key_source == ANYATTN_KEYS_PAGED ? (p.block_size > 0 ? p.block_size : 16) : 0;
  report.block_size_multiple = 1;
  report.query_lengths = ANYATTN_QUERY_ANY;
  if (has(p, ANYATTN_FEATURE_LSE)) report.lse_bases = ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2;
}

// Scores of one row per worker. Wrong builds write one byte more.
inline uint64_t scratch_bytes(uint32_t num_workers, uint32_t max_keys) {
  return uint64_t{num_workers} * max_keys * sizeof(float);
}

inline void check_cache(const anyattn_cache* cache, uint64_t digest) {
  if (!cache || !cache->base || !cache->spec) throw anyattn::Error(ANYATTN_INVALID_ARGUMENT, "the cache is absent");
  if (cache->spec->digest != digest) throw anyattn::Error(ANYATTN_INVALID_ARGUMENT, "the cache has another spec than the impl");
}

inline void check_base(const anyattn_tensor& lse, uint32_t base) {
  if (lse.data && base != ANYATTN_LSE_NATURAL && base != ANYATTN_LSE_BASE2) {
    throw anyattn::Error(ANYATTN_INVALID_ARGUMENT, "lse_base ", base, "; allowed: 1 (natural), 2 (base 2)");
  }
}

inline std::byte* block_of(const anyattn_cache& cache, int64_t block) {
  return static_cast<std::byte*>(cache.base) + static_cast<uint64_t>(block) * cache.block_stride_bytes;
}

// The request of row `row`; num_reqs for rows past the last one.
inline uint32_t request_of(const anyattn_batch& batch, int64_t row) {
  uint32_t request = 0;
  while (request < batch.num_reqs && row >= batch.query_start_loc[request + 1]) ++request;
  return request;
}

}  // namespace naive
