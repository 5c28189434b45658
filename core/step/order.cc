// SPDX-License-Identifier: Apache-2.0
// Decode first, prefill behind it: the order of a batch, its two parts, and what all groups can agree on.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "anyattn/step.h"
#include "anyattn/util.h"

namespace {

// `uniform`: length of the first decode of more than 0 tokens, 0 while there is none.
bool is_decode(int32_t query_len, uint32_t threshold, uint32_t query_lengths, int32_t uniform) {
  if (query_len == 0) return true;
  if (query_lengths == ANYATTN_QUERY_SINGLE && query_len != 1) return false;
  if (query_lengths == ANYATTN_QUERY_UNIFORM && uniform != 0 && query_len != uniform) return false;
  return static_cast<uint32_t>(query_len) <= threshold;
}

// Exact maxima of rows [first, first + count) where host copies are there; the whole batch's are upper bounds.
void narrow_maxima(const anyattn_batch& batch, uint32_t first, uint32_t count, anyattn_batch* out) {
  if (batch.query_start_loc_host) {
    out->max_query_len = 0;
    for (uint32_t i = first; i < first + count; ++i) {
      const int32_t length = batch.query_start_loc_host[i + 1] - batch.query_start_loc_host[i];
      out->max_query_len = std::max(out->max_query_len, static_cast<uint32_t>(length));
    }
  }
  if (batch.seq_lens_host) {
    out->max_seq_len = 0;
    for (uint32_t i = first; i < first + count; ++i) {
      out->max_seq_len = std::max(out->max_seq_len, static_cast<uint32_t>(batch.seq_lens_host[i]));
    }
  }
}

// Moves every per-request array to row `first`; query_start_loc is the caller's.
void move_rows(uint32_t first, anyattn_batch* out) {
  if (out->seq_lens) out->seq_lens += first;
  if (out->block_table) out->block_table += static_cast<int64_t>(first) * out->block_table_stride;
  if (out->key_start_loc) out->key_start_loc += first;
  if (out->seq_lens_host) out->seq_lens_host += first;
  if (out->causal) out->causal += first;
  if (out->mm_prefix_start_loc) out->mm_prefix_start_loc += first;
}

}  // namespace

extern "C" {

uint32_t anyattn_step_decode_threshold(const uint32_t* thresholds, uint32_t num_groups) {
  uint32_t smallest = std::numeric_limits<uint32_t>::max();
  for (uint32_t g = 0; thresholds && g < num_groups; ++g) {
    if (thresholds[g] > 0) smallest = std::min(smallest, thresholds[g]);
  }
  return smallest == std::numeric_limits<uint32_t>::max() ? 1 : smallest;
}

int32_t anyattn_step_order(const int32_t* query_lens, uint32_t num_reqs, uint32_t threshold, uint32_t query_lengths,
                           uint32_t* order, anyattn_step_split* split, anyattn_error* error) {
  if (!split || (num_reqs > 0 && (!query_lens || !order))) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: order without %s",
                             split ? "lengths or a place" : "a split");
  }
  if (query_lengths < ANYATTN_QUERY_SINGLE || query_lengths > ANYATTN_QUERY_ANY) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "step: order with query_lengths %u; allowed: 1 (single), 2 (uniform), 3 (any)", query_lengths);
  }
  anyattn_step_split own{};
  int32_t uniform = 0;
  int64_t tokens = 0;
  for (uint32_t i = 0; i < num_reqs; ++i) {
    tokens += query_lens[i];
    if (query_lens[i] < 0 || tokens > std::numeric_limits<int32_t>::max()) {
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                               "step: order: row %u has query length %d; allowed: 0 or more, below 2^31 in all", i,
                               query_lens[i]);
    }
    if (!is_decode(query_lens[i], threshold, query_lengths, uniform)) continue;
    if (uniform == 0) uniform = query_lens[i];
    order[own.num_decode_reqs++] = i;
    own.num_decode_tokens += static_cast<uint32_t>(query_lens[i]);
  }
  // Prefills are what the first pass left out; its result is in rising order, so one walk beside it finds them.
  for (uint32_t i = 0, decode = 0; i < num_reqs; ++i) {
    if (decode < own.num_decode_reqs && order[decode] == i) {
      ++decode;
      continue;
    }
    order[own.num_decode_reqs + own.num_prefill_reqs++] = i;
    own.num_prefill_tokens += static_cast<uint32_t>(query_lens[i]);
  }
  const uint32_t size = std::min<uint32_t>(split->struct_size, ANYATTN_STEP_SPLIT_SIZE);
  own.struct_size = split->struct_size;
  std::memcpy(split, &own, size);
  return ANYATTN_OK;
}

int32_t anyattn_step_slice(const anyattn_batch* batch, const anyattn_step_split* given_split, uint32_t part,
                           const int32_t* prefill_query_start_loc, const int32_t* prefill_query_start_loc_host,
                           anyattn_batch* out, anyattn_error* error) {
  if (!batch || !given_split || !out) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: slice without %s",
                             !batch ? "a batch"
                             : out  ? "a split"
                                    : "a place");
  }
  anyattn_batch whole;
  anyattn_step_split split;
  anyattn_read_struct(&whole, ANYATTN_BATCH_SIZE, batch);
  anyattn_read_struct(&split, ANYATTN_STEP_SPLIT_SIZE, given_split);
  const uint64_t reqs = uint64_t{split.num_decode_reqs} + split.num_prefill_reqs;
  const uint64_t tokens = uint64_t{split.num_decode_tokens} + split.num_prefill_tokens;
  if (reqs > whole.num_reqs || tokens > whole.num_tokens) {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "step: slice: the split has %llu requests and %llu tokens, the batch %u and %u; make the split of this batch",
        static_cast<unsigned long long>(reqs), static_cast<unsigned long long>(tokens), whole.num_reqs, whole.num_tokens);
  }
  anyattn_batch own = whole;
  if (part == ANYATTN_PHASE_DECODE) {
    own.num_reqs = split.num_decode_reqs;
    own.num_tokens = split.num_decode_tokens;
    narrow_maxima(whole, 0, own.num_reqs, &own);
  } else if (part == ANYATTN_PHASE_PREFILL) {
    if (!prefill_query_start_loc) {
      return anyattn_error_set(
          error, ANYATTN_INVALID_ARGUMENT,
          "step: slice of the prefill part without prefill_query_start_loc; anyattn_step_rebase makes its values");
    }
    own.num_reqs = split.num_prefill_reqs;
    own.num_tokens = split.num_prefill_tokens;
    narrow_maxima(whole, split.num_decode_reqs, own.num_reqs, &own);
    move_rows(split.num_decode_reqs, &own);
    own.query_start_loc = prefill_query_start_loc;
    own.query_start_loc_host = prefill_query_start_loc_host;
  } else if (part != ANYATTN_PHASE_BOTH) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "step: slice of part %u; allowed: 0 (both), 1 (prefill), 2 (decode)", part);
  }
  own.struct_size = std::min<uint32_t>(out->struct_size, ANYATTN_BATCH_SIZE);
  std::memcpy(out, &own, own.struct_size);
  return ANYATTN_OK;
}

void anyattn_step_rebase(const int32_t* start_loc, uint32_t first, uint32_t count, int32_t* out) {
  if (!start_loc || !out) return;
  for (uint32_t i = 0; i <= count; ++i) out[i] = start_loc[first + i] - start_loc[first];
}

uint32_t anyattn_step_graph_level(const uint32_t* levels, uint32_t num_groups, uint32_t* lowered_by) {
  constexpr uint32_t kKnown[] = {ANYATTN_GRAPH_ALWAYS, ANYATTN_GRAPH_UNIFORM_BATCH, ANYATTN_GRAPH_SINGLE_TOKEN_DECODE,
                                 ANYATTN_GRAPH_NEVER};
  if (!levels) num_groups = 0;
  uint32_t lowest = num_groups > 0 ? ANYATTN_GRAPH_ALWAYS : ANYATTN_GRAPH_NEVER;
  uint32_t by = num_groups;
  for (uint32_t g = 0; g < num_groups; ++g) {
    const uint32_t level =
        *std::find_if(std::begin(kKnown), std::end(kKnown), [&](uint32_t known) { return known <= levels[g]; });
    if (level >= lowest) continue;
    lowest = level;
    by = g;
  }
  if (lowered_by) *lowered_by = by;
  return lowest;
}

}  // extern "C"
