// SPDX-License-Identifier: Apache-2.0
// What a group's calls must look like: sizes, dtypes, which tensors its features want and forbid. Included by the hot calls.
// Checks cost a few compares; texts are made only when one fails. Reads no device memory; host arrays of the CPU are looked at.
#pragma once

#include <cstdint>
#include <string>

#include "anyattn/attention.h"

namespace anyattn::api {

// Everything about a group that its calls are compared with; fixed when the group is made.
struct Expected {
  std::string who;  // group "full" (CPU_ATTN), begins every text
  std::string backend;
  int32_t device_kind = 0;
  int32_t device_ordinal = 0;
  bool host_memory = false;  // device arrays can be read here
  bool is_mla = false;
  bool is_paged = false;
  bool needs_host_lengths = false;
  uint32_t query_lengths = 0;  // ANYATTN_QUERY_* of the rows that DECODE or BOTH see
  uint32_t lse_bases = 0;
  uint64_t features = 0;
  uint32_t q_dtype = 0;
  uint32_t new_kv_dtype = 0;  // of k, v, kv_c, k_pe and of MLA's expanded tensors
  uint32_t out_dtype = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t head_size_v = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t top_k = 0;
  int64_t out_block_size = 0;
  anyattn_limits limits{};
  uint64_t spec_digest = 0;
  uint64_t spec_block_bytes = 0;
  uint32_t spec_alignment = 0;

  bool has(uint32_t feature) const { return ((features >> feature) & 1u) != 0; }
};

// Copies problem and limits into *expected; the rest is the group's business.
void expect_problem(const anyattn_problem& problem, const anyattn_limits& limits, Expected* expected);

// What the last update of a part said.
struct PartState {
  bool is_ready = false;  // an update succeeded and none failed since
  int64_t num_reqs = 0;
  int64_t num_tokens = 0;
};

// Each returns ANYATTN_OK, or a status with one sentence in `error`.
int32_t check_batch(const Expected& expected, uint32_t part, const anyattn_batch& batch, anyattn_error* error);
int32_t check_kv_cache_update(const Expected& expected, const anyattn_kv_cache_update_args& args, anyattn_error* error);
int32_t check_forward(const Expected& expected, const PartState& part, const anyattn_forward_args& args, anyattn_error* error);
int32_t check_mqa(const Expected& expected, const PartState& part, const anyattn_mqa_args& args, anyattn_error* error);
int32_t check_context_gather(const Expected& expected, const PartState& part, const anyattn_context_chunk& chunk,
                             const anyattn_context_gather_args& args, anyattn_error* error);
int32_t check_mha(const Expected& expected, const anyattn_mha_args& args, anyattn_error* error);
int32_t check_merge(const Expected& expected, const anyattn_merge_args& args, anyattn_error* error);

}  // namespace anyattn::api
