// SPDX-License-Identifier: Apache-2.0
// The numbers of an MLA case: latent cache rows, queries, for prefill the up-projections, and the reference results.
// Included by the kit's runs and by tests of the reference. Knows no backend.
#ifndef ANYATTN_CONFORMANCE_MLA_DATA_H
#define ANYATTN_CONFORMANCE_MLA_DATA_H

#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

struct MlaData {
  double softmax_scale = 1.0;
  int64_t num_tokens = 0;                // rows of q, pad_rows counted
  int64_t num_key_rows = 0;              // key rows stand in request order
  std::vector<int32_t> query_start_loc;  // [num_reqs + 1]
  std::vector<int64_t> key_start;        // [num_reqs]
  std::vector<float> rows;               // [num_key_rows, kv_lora_rank + rope], as handed to the cache
  std::vector<float> stored;             // likewise, what a reader of the cache gets
  std::vector<float> gathered;           // likewise, in the query's dtype: what context_gather gives
  std::vector<float> q;                  // decode [num_tokens, heads, lora + rope], prefill [num_tokens, heads, nope + rope]
  std::vector<float> expanded_k;         // prefill: [num_key_rows, heads, nope + rope], rounded as the engine stores it
  std::vector<float> expanded_v;         // prefill: [num_key_rows, heads, v_head_dim]
  std::vector<float> w_uk;               // prefill: [heads, lora, nope]
};

// decode: q = D(seed), rows = D(seed + 1). prefill: W_UK, W_UV, latents, rope keys, q of the five seeds.
MlaData make_mla_data(const Case& c);

// Rules of the request's decode rows on rank `rank` of the case's shards.
RowRules mla_rules(const Case& c, const MlaData& data, size_t request, uint32_t rank);

Reference mla_decode_reference(const Case& c, const MlaData& data, uint32_t rank);

// Keys [context_start, + rows) of each request that one round of the chunk plan takes; the plan is over where all are empty.
struct ChunkPlan {
  std::vector<int32_t> context_start;  // [num_reqs]
  std::vector<int32_t> row_start_loc;  // [num_reqs + 1]
};
std::vector<ChunkPlan> plan_chunks(const Case& c);

// One part of a prefill: every row against the keys of a chunk (not causal), or against the new tokens (causal) where
// `chunk` is null.
Reference mla_part_reference(const Case& c, const MlaData& data, const ChunkPlan* chunk);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_MLA_DATA_H
