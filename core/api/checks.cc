// SPDX-License-Identifier: Apache-2.0
// The args of one layer's call against its group: on the hot path, so each check is a compare and a branch that is not taken.
#include "api/checks.h"

#include "api/call_checks.h"

namespace anyattn::api {
namespace {

// Tensors of forward that features bring, apart from scales of keys and values.
int32_t check_forward_features(const Call& call, const PartState& part, const anyattn_forward_args& args) {
  const Expected& expected = call.expected;
  const bool alibi = expected.has(ANYATTN_FEATURE_ALIBI) || expected.has(ANYATTN_FEATURE_ALIBI_SQRT) ||
                     expected.has(ANYATTN_FEATURE_ALIBI_SYMMETRIC);
  const bool sinks = expected.has(ANYATTN_FEATURE_SINKS);
  const bool out_scale = expected.has(ANYATTN_FEATURE_OUT_SCALE);
  const bool out_block_scales = expected.has(ANYATTN_FEATURE_OUT_BLOCK_SCALES);
  const char* const alibi_names = "alibi, alibi_sqrt or alibi_symmetric";
  if (const int32_t status = check_presence(call, "sinks", args.sinks, sinks, "sinks")) return status;
  if (const int32_t status = check_presence(call, "alibi_slopes", args.alibi_slopes, alibi, alibi_names)) return status;
  if (const int32_t status = check_presence(call, "out_scale", args.out_scale, out_scale, "out_scale")) return status;
  if (const int32_t status =
          check_presence(call, "out_block_scales", args.out_block_scales, out_block_scales, "out_block_scales")) {
    return status;
  }
  constexpr uint32_t kFloat = ANYATTN_DTYPE_FLOAT32;
  int32_t status = ANYATTN_OK;
  if (sinks) status = check_tensor(call, "sinks", args.sinks, kFloat, {expected.num_q_heads});
  if (alibi && !status) status = check_tensor(call, "alibi_slopes", args.alibi_slopes, kFloat, {expected.num_q_heads});
  if (out_scale && !status) status = check_tensor(call, "out_scale", args.out_scale, kFloat, {1});
  if (out_block_scales && !status) {
    status = check_tensor(call, "out_block_scales", args.out_block_scales, ANYATTN_DTYPE_NONE,
                          {part.num_tokens, expected.num_q_heads * expected.head_size_v / expected.out_block_size});
  }
  return status;
}

// k and v of a ragged group; a paged one has none.
int32_t check_ragged_keys(const Call& call, const anyattn_forward_args& args) {
  const Expected& expected = call.expected;
  const bool is_wanted = !expected.is_paged;
  if (const int32_t status = check_presence(call, "k", args.k, is_wanted, "ragged keys")) return status;
  if (const int32_t status = check_presence(call, "v", args.v, is_wanted, "ragged keys")) return status;
  if (!is_wanted) [[likely]]
    return ANYATTN_OK;
  const uint32_t dtype = expected.new_kv_dtype;
  if (const int32_t status = check_tensor(call, "k", args.k, dtype, {kAnySize, expected.num_kv_heads, expected.head_size})) {
    return status;
  }
  return check_tensor(call, "v", args.v, dtype, {args.k.shape[0], expected.num_kv_heads, expected.head_size_v});
}

}  // namespace

void expect_problem(const anyattn_problem& problem, const anyattn_limits& limits, Expected* expected) {
  expected->is_mla = anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA) != 0;
  expected->is_paged = problem.key_source == ANYATTN_KEYS_PAGED;
  expected->features = problem.num_feature_words > 0 ? problem.features[0] : 0;
  expected->q_dtype = problem.q_dtype;
  expected->new_kv_dtype = expected->has(ANYATTN_FEATURE_QUANTISED_QUERY) ? problem.out_dtype : problem.q_dtype;
  expected->out_dtype = problem.out_dtype;
  expected->num_q_heads = problem.num_q_heads;
  expected->num_kv_heads = problem.num_kv_heads;
  expected->head_size = problem.head_size;
  expected->head_size_v = problem.head_size_v;
  expected->kv_lora_rank = problem.kv_lora_rank;
  expected->qk_nope_head_dim = problem.qk_nope_head_dim;
  expected->qk_rope_head_dim = problem.qk_rope_head_dim;
  expected->v_head_dim = problem.v_head_dim;
  expected->top_k = problem.top_k;
  expected->out_block_size = problem.out_block_size;
  expected->limits = limits;
}

int32_t check_kv_cache_update(const Expected& expected, const anyattn_kv_cache_update_args& args, anyattn_error* error) {
  const Call call{expected, "kv_cache_update", error};
  if (!expected.is_paged) [[unlikely]] {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "%s: kv_cache_update: keys are ragged here, there is no cache; pass k "
                             "and v to forward",
                             expected.who.c_str());
  }
  if (const int32_t status = check_tensor(call, "slot_mapping", args.slot_mapping, ANYATTN_DTYPE_INT64, {kAnySize}))
    return status;
  if (const int32_t status = check_cache(call, args.cache)) return status;
  const int64_t num_slots = args.slot_mapping.shape[0];
  const bool mla = expected.is_mla;
  if (const int32_t status = check_presence(call, "k", args.k, !mla, "a cache of k and v")) return status;
  if (const int32_t status = check_presence(call, "v", args.v, !mla, "a cache of k and v")) return status;
  if (const int32_t status = check_presence(call, "kv_c", args.kv_c, mla, "mla")) return status;
  if (const int32_t status = check_presence(call, "k_pe", args.k_pe, mla, "mla")) return status;
  const uint32_t dtype = expected.new_kv_dtype;
  const anyattn_tensor& first = mla ? args.kv_c : args.k;
  int32_t status = ANYATTN_OK;
  if (mla) {
    status = check_tensor(call, "kv_c", args.kv_c, dtype, {kAnySize, expected.kv_lora_rank});
    if (!status) status = check_tensor(call, "k_pe", args.k_pe, dtype, {args.kv_c.shape[0], expected.qk_rope_head_dim});
  } else {
    status = check_tensor(call, "k", args.k, dtype, {kAnySize, expected.num_kv_heads, expected.head_size});
    if (!status)
      status = check_tensor(call, "v", args.v, dtype, {args.k.shape[0], expected.num_kv_heads, expected.head_size_v});
  }
  if (!status) status = check_kv_scale(call, "k_scale", args.k_scale);
  if (mla && !status)
    status = check_presence(call, "v_scale", args.v_scale, false, "a scale of v (MLA has one scale, k_scale)");
  if (!mla && !status) status = check_kv_scale(call, "v_scale", args.v_scale);
  if (!status && first.shape[0] < num_slots) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "%s: kv_cache_update: slot_mapping has %" PRId64 " entries, %s only %" PRId64 " rows",
                             expected.who.c_str(), num_slots, mla ? "kv_c" : "k", first.shape[0]);
  }
  return status;
}

int32_t check_forward(const Expected& expected, const PartState& part, const anyattn_forward_args& args, anyattn_error* error) {
  const Call call{expected, "forward", error};
  const int64_t rows = part.num_tokens;
  const int64_t heads = expected.num_q_heads;
  if (const int32_t status = check_ready(call, part)) return status;
  if (const int32_t status = check_scale(call, args.softmax_scale)) return status;
  if (const int32_t status = check_tensor(call, "q", args.q, expected.q_dtype, {rows, heads, expected.head_size}))
    return status;
  if (const int32_t status = check_tensor(call, "out", args.out, expected.out_dtype, {rows, heads, expected.head_size_v})) {
    return status;
  }
  if (const int32_t status = check_ragged_keys(call, args)) return status;
  if (const int32_t status = check_cache(call, args.cache)) return status;
  if (const int32_t status = check_forward_features(call, part, args)) return status;
  if (const int32_t status = check_q_scale(call, args.q_scale)) return status;
  if (const int32_t status = check_kv_scale(call, "k_scale", args.k_scale)) return status;
  if (const int32_t status = check_kv_scale(call, "v_scale", args.v_scale)) return status;
  if (const int32_t status = check_sparse(call, args.sparse_indices, rows)) return status;
  if (const int32_t status = check_lse(call, args.lse, args.lse_base, rows)) return status;
  return check_scratch(call, args.scratch);
}

}  // namespace anyattn::api
