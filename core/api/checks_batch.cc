// SPDX-License-Identifier: Apache-2.0
// A step's batch against the limits and features of its group. Once a step and part, so lengths are looked at one by one where
// the host can read them: a wrong query_start_loc would send a kernel outside its tensors.
#include <algorithm>

#include "anyattn/backend.h"
#include "anyattn/util.h"
#include "api/tensor_check.h"

namespace anyattn::api {
namespace {

struct Counted {
  const char* field;
  uint32_t value;
  const char* limit_field;
  uint32_t limit;
};

struct Array {
  const char* field;
  bool is_given;
  bool is_wanted;
  const char* feature;
};

int32_t check_lengths(const Expected& expected, bool sees_decode, const int32_t* query_start_loc, const int32_t* seq_lens,
                      const anyattn_batch& batch, anyattn_error* error) {
  const char* who = expected.who.c_str();
  const Call call{expected, "update", error};
  if (const int32_t status =
          check_start_loc(call, "query_start_loc", query_start_loc, batch.num_reqs, batch.max_query_len, batch.num_tokens)) {
    return status;
  }
  int32_t uniform = 0;  // rows of the first request that has any
  for (uint32_t i = 0; i < batch.num_reqs; ++i) {
    if (seq_lens[i] < 0 || static_cast<uint32_t>(seq_lens[i]) > batch.max_seq_len) {
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: update: seq_lens[%u] is %d; allowed: 0 to max_seq_len %u",
                               who, i, seq_lens[i], batch.max_seq_len);
    }
    const int32_t query_len = query_start_loc[i + 1] - query_start_loc[i];
    if (uniform == 0) uniform = query_len;
    if (sees_decode && expected.query_lengths == ANYATTN_QUERY_UNIFORM && query_len != 0 && query_len != uniform) {
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                               "%s: update: request %u has %d rows and another %d; %s takes batches of equal query lengths",
                               who, i, query_len, uniform, expected.backend.c_str());
    }
  }
  return ANYATTN_OK;
}

}  // namespace

int32_t check_batch(const Expected& expected, uint32_t part, const anyattn_batch& batch, anyattn_error* error) {
  const char* who = expected.who.c_str();
  const anyattn_limits& limits = expected.limits;
  const Counted counted[] = {
      {"num_reqs", batch.num_reqs, "max_num_reqs", limits.max_num_reqs},
      {"num_tokens", batch.num_tokens, "max_num_tokens", limits.max_num_tokens},
      {"max_query_len", batch.max_query_len, "max_query_len", limits.max_query_len},
      {"max_seq_len", batch.max_seq_len, "max_seq_len", limits.max_seq_len},
  };
  for (const Counted& count : counted) {
    if (count.value > count.limit) [[unlikely]] {
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: update: %s is %u; the group was made with %s %u", who,
                               count.field, count.value, count.limit_field, count.limit);
    }
  }
  const bool any = batch.num_reqs > 0;
  const bool mm_prefix = expected.has(ANYATTN_FEATURE_MM_PREFIX);
  const Array arrays[] = {
      {"query_start_loc", batch.query_start_loc != nullptr, any || batch.query_start_loc, "every batch has it"},
      {"seq_lens", batch.seq_lens != nullptr, any || batch.seq_lens, "every batch has it"},
      {"block_table", batch.block_table != nullptr, expected.is_paged && (any || batch.block_table), "paged keys"},
      {"key_start_loc", batch.key_start_loc != nullptr, !expected.is_paged && (any || batch.key_start_loc), "ragged keys"},
      {"causal", batch.causal != nullptr, expected.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) && (any || batch.causal),
       "per_request_causal"},
      {"mm_prefix_start_loc", batch.mm_prefix_start_loc != nullptr, mm_prefix && (any || batch.mm_prefix_start_loc),
       "mm_prefix"},
      {"mm_prefix_ranges", batch.mm_prefix_ranges != nullptr, mm_prefix && batch.mm_prefix_ranges, "mm_prefix"},
      {"query_start_loc_host", batch.query_start_loc_host != nullptr,
       batch.query_start_loc_host || (any && expected.needs_host_lengths), "the backend reads host lengths"},
      {"seq_lens_host", batch.seq_lens_host != nullptr, batch.seq_lens_host || (any && expected.needs_host_lengths),
       "the backend reads host lengths"},
  };
  for (const Array& array : arrays) {
    if (array.is_given == array.is_wanted) [[likely]]
      continue;
    if (array.is_wanted) {
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: update: %s is null; this group wants it: %s", who,
                               array.field, array.feature);
    }
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "%s: update: %s is given, but this group's problem does not carry %s; leave it null or make the group "
        "with it",
        who, array.field, array.feature);
  }
  if (!any) return ANYATTN_OK;
  if (expected.is_paged && batch.block_table_stride < 1) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: update: block_table_stride is %lld; allowed: 1 and more",
                             who, static_cast<long long>(batch.block_table_stride));
  }
  const bool sees_decode = part != ANYATTN_PHASE_PREFILL;
  if (sees_decode && expected.query_lengths == ANYATTN_QUERY_SINGLE && batch.max_query_len > 1) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: update: max_query_len is %u; %s takes one row a request",
                             who, batch.max_query_len, expected.backend.c_str());
  }
  const int32_t* query_start_loc = batch.query_start_loc_host;
  const int32_t* seq_lens = batch.seq_lens_host;
  if (expected.host_memory) {
    query_start_loc = batch.query_start_loc;
    seq_lens = batch.seq_lens;
  }
  if (!query_start_loc || !seq_lens) return ANYATTN_OK;
  if (const int32_t status = check_lengths(expected, sees_decode, query_start_loc, seq_lens, batch, error)) return status;
  if (expected.is_paged || !expected.host_memory) return ANYATTN_OK;
  return check_start_loc({expected, "update", error}, "key_start_loc", batch.key_start_loc, batch.num_reqs, batch.max_seq_len,
                         INT32_MAX);
}

}  // namespace anyattn::api
