// SPDX-License-Identifier: Apache-2.0
// The args of MLA's calls, and of merging partial results, against their group. Hot like checks.cc.
#include "api/call_checks.h"

namespace anyattn::api {

int32_t check_mqa(const Expected& expected, const PartState& part, const anyattn_mqa_args& args, anyattn_error* error) {
  const Call call{expected, "forward_mqa", error};
  const int64_t rows = part.num_tokens;
  const int64_t heads = expected.num_q_heads;
  if (const int32_t status = check_ready(call, part)) return status;
  if (part.num_reqs == 0 || rows == 0) [[unlikely]] {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "%s: forward_mqa: the decode part has no rows in this step; skip the call", expected.who.c_str());
  }
  if (const int32_t status = check_scale(call, args.softmax_scale)) return status;
  const uint32_t dtype = expected.q_dtype;
  if (const int32_t status = check_tensor(call, "q_latent", args.q_latent, dtype, {rows, heads, expected.kv_lora_rank})) {
    return status;
  }
  if (const int32_t status = check_tensor(call, "q_pe", args.q_pe, dtype, {rows, heads, expected.qk_rope_head_dim}))
    return status;
  if (const int32_t status = check_tensor(call, "out", args.out, expected.out_dtype, {rows, heads, expected.kv_lora_rank})) {
    return status;
  }
  if (const int32_t status = check_cache(call, args.cache)) return status;
  if (const int32_t status = check_q_scale(call, args.q_scale)) return status;
  if (const int32_t status = check_kv_scale(call, "k_scale", args.k_scale)) return status;
  if (const int32_t status = check_sparse(call, args.sparse_indices, rows)) return status;
  if (const int32_t status = check_lse(call, args.lse, args.lse_base, rows)) return status;
  return check_scratch(call, args.scratch);
}

int32_t check_context_gather(const Expected& expected, const PartState& part, const anyattn_context_chunk& chunk,
                             const anyattn_context_gather_args& args, anyattn_error* error) {
  const Call call{expected, "context_gather", error};
  if (const int32_t status = check_ready(call, part)) return status;
  if (chunk.num_reqs != part.num_reqs || chunk.max_rows > chunk.num_rows || !chunk.row_start_loc || !chunk.context_start)
      [[unlikely]] {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "%s: context_gather: the chunk has num_reqs %u, num_rows %u, max_rows %u, row_start_loc %p, "
        "context_start %p; wanted: the %" PRId64 " requests of the prefill part, max_rows within num_rows, both tables",
        expected.who.c_str(), chunk.num_reqs, chunk.num_rows, chunk.max_rows, static_cast<const void*>(chunk.row_start_loc),
        static_cast<const void*>(chunk.context_start), part.num_reqs);
  }
  if (expected.host_memory) {
    if (const int32_t status =
            check_start_loc(call, "row_start_loc", chunk.row_start_loc, chunk.num_reqs, chunk.max_rows, chunk.num_rows)) {
      return status;
    }
  }
  const uint32_t dtype = expected.new_kv_dtype;
  if (const int32_t status = check_tensor(call, "kv_c", args.kv_c, dtype, {chunk.num_rows, expected.kv_lora_rank}))
    return status;
  if (const int32_t status = check_tensor(call, "k_pe", args.k_pe, dtype, {chunk.num_rows, expected.qk_rope_head_dim})) {
    return status;
  }
  if (const int32_t status = check_kv_scale(call, "k_scale", args.k_scale)) return status;
  return check_cache(call, args.cache);
}

int32_t check_mha(const Expected& expected, const anyattn_mha_args& args, anyattn_error* error) {
  const Call call{expected, "forward_mha", error};
  const anyattn_limits& limits = expected.limits;
  if (const int32_t status = check_scale(call, args.softmax_scale)) return status;
  if (args.num_reqs > limits.max_num_reqs || args.max_query_len > limits.max_query_len ||
      args.max_key_len > limits.max_seq_len || args.causal > 1 ||
      (args.num_reqs > 0 && (!args.query_start_loc || !args.key_start_loc))) [[unlikely]] {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "%s: forward_mha: num_reqs %u, max_query_len %u, max_key_len %u, causal %u, query_start_loc %p, "
                             "key_start_loc %p; allowed: up to %u, %u, %u, 0 or 1, both arrays present",
                             expected.who.c_str(), args.num_reqs, args.max_query_len, args.max_key_len, args.causal,
                             static_cast<const void*>(args.query_start_loc), static_cast<const void*>(args.key_start_loc),
                             limits.max_num_reqs, limits.max_query_len, limits.max_seq_len);
  }
  const uint32_t dtype = expected.new_kv_dtype;
  const int64_t heads = expected.num_q_heads;
  const int64_t width = expected.qk_nope_head_dim + expected.qk_rope_head_dim;
  if (const int32_t status = check_tensor(call, "q", args.q, dtype, {kAnySize, heads, width})) return status;
  const int64_t rows = args.q.shape[0];
  if (rows > limits.max_num_tokens) [[unlikely]] {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "%s: forward_mha: q has %" PRId64 " rows; the group was made with max_num_tokens %u",
                             expected.who.c_str(), rows, limits.max_num_tokens);
  }
  if (const int32_t status = check_tensor(call, "k", args.k, dtype, {kAnySize, heads, width})) return status;
  if (const int32_t status = check_tensor(call, "v", args.v, dtype, {args.k.shape[0], heads, expected.v_head_dim}))
    return status;
  if (const int32_t status = check_tensor(call, "out", args.out, expected.out_dtype, {rows, heads, expected.v_head_dim})) {
    return status;
  }
  if (expected.host_memory && args.num_reqs > 0) {
    if (const int32_t status =
            check_start_loc(call, "query_start_loc", args.query_start_loc, args.num_reqs, args.max_query_len, rows)) {
      return status;
    }
    if (const int32_t status =
            check_start_loc(call, "key_start_loc", args.key_start_loc, args.num_reqs, args.max_key_len, args.k.shape[0])) {
      return status;
    }
  }
  if (const int32_t status = check_lse(call, args.lse, args.lse_base, rows)) return status;
  return check_scratch(call, args.scratch);
}

int32_t check_merge(const Expected& expected, const anyattn_merge_args& args, anyattn_error* error) {
  const Call call{expected, "merge_states", error};
  const int64_t heads = expected.num_q_heads;
  if (args.num_states == 0 || !args.states || args.state_stride < ANYATTN_STATE_SIZE || args.state_stride % 8 != 0)
      [[unlikely]] {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "%s: merge_states: num_states %u, states %p, state_stride %u; wanted: 1 or more, not null, a multiple of "
        "8 from %u on",
        expected.who.c_str(), args.num_states, static_cast<const void*>(args.states), args.state_stride, ANYATTN_STATE_SIZE);
  }
  if (const int32_t status = check_tensor(call, "out", args.out, expected.out_dtype, {kAnySize, heads, kAnySize}))
    return status;
  const int64_t rows = args.out.shape[0];
  const int64_t width = args.out.shape[2];
  const auto bad_base = [&](const char* field, uint32_t base) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: merge_states: %s is %u; allowed: 1 (natural), 2 (base 2)",
                             expected.who.c_str(), field, base);
  };
  const auto is_base = [](uint32_t base) { return base == ANYATTN_LSE_NATURAL || base == ANYATTN_LSE_BASE2; };
  for (uint32_t i = 0; i < args.num_states; ++i) {
    const auto& state = *reinterpret_cast<const anyattn_state*>(reinterpret_cast<const char*>(args.states) +
                                                                static_cast<size_t>(i) * args.state_stride);
    if (!is_base(state.lse_base)) return bad_base("states[].lse_base", state.lse_base);
    if (const int32_t status = check_tensor(call, "states[].out", state.out, expected.out_dtype, {rows, heads, width}))
      return status;
    if (const int32_t status = check_tensor(call, "states[].lse", state.lse, ANYATTN_DTYPE_FLOAT32, {rows, heads}))
      return status;
  }
  if (!is_given(args.lse)) return ANYATTN_OK;
  if (!is_base(args.lse_base)) return bad_base("lse_base", args.lse_base);
  return check_tensor(call, "lse", args.lse, ANYATTN_DTYPE_FLOAT32, {rows, heads});
}

}  // namespace anyattn::api
