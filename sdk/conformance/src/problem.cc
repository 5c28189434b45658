// SPDX-License-Identifier: Apache-2.0
#include "problem.h"

#include <algorithm>

#include "format_case.h"
#include "host.h"

namespace anyattn::conformance {
namespace {

constexpr const char* kFeatureNames[ANYATTN_FEATURE_COUNT] = {"non_causal",
                                                              "per_request_causal",
                                                              "window",
                                                              "soft_cap",
                                                              "alibi",
                                                              "alibi_sqrt",
                                                              "alibi_symmetric",
                                                              "sinks",
                                                              "mm_prefix",
                                                              "sparse_topk",
                                                              "chunked_local",
                                                              "cp_decode",
                                                              "cp_prefill",
                                                              "lse",
                                                              "batch_invariant",
                                                              "quantised_query",
                                                              "kv_scales",
                                                              "kv_scales_per_head",
                                                              "out_scale",
                                                              "out_block_scales",
                                                              "mla",
                                                              "kv_transfer",
                                                              "graph"};

uint64_t bit(uint32_t feature) { return uint64_t{1} << feature; }

uint32_t alibi_feature(Alibi alibi) {
  switch (alibi) {
    case Alibi::kSqrt:
      return ANYATTN_FEATURE_ALIBI_SQRT;
    case Alibi::kSymmetric:
      return ANYATTN_FEATURE_ALIBI_SYMMETRIC;
    default:
      return ANYATTN_FEATURE_ALIBI;
  }
}

bool all_single(const Case& c) {
  return std::all_of(c.lens.begin(), c.lens.end(), [](const RequestLens& lens) { return lens.query_len <= 1; });
}

}  // namespace

std::string feature_name(uint32_t feature) {
  return feature < ANYATTN_FEATURE_COUNT ? kFeatureNames[feature] : "feature_" + std::to_string(feature);
}

bool is_mla(const Case& c) { return c.kv_lora_rank > 0; }

uint64_t features_of(const Case& c, uint32_t rank) {
  uint64_t features = 0;
  const auto add = [&](bool wanted, uint32_t feature) { features |= wanted ? bit(feature) : 0; };
  add(c.non_causal, ANYATTN_FEATURE_NON_CAUSAL);
  add(!c.causal.empty(), ANYATTN_FEATURE_PER_REQUEST_CAUSAL);
  add(c.window_left >= 0 || c.window_right >= 0, ANYATTN_FEATURE_WINDOW);
  add(c.soft_cap > 0, ANYATTN_FEATURE_SOFT_CAP);
  add(c.alibi != Alibi::kNone, alibi_feature(c.alibi));
  add(!c.sinks.empty() && rank == 0, ANYATTN_FEATURE_SINKS);
  add(!c.mm.empty(), ANYATTN_FEATURE_MM_PREFIX);
  add(c.top_k > 0, ANYATTN_FEATURE_SPARSE_TOPK);
  add(c.chunk_size > 0, ANYATTN_FEATURE_CHUNKED_LOCAL);
  add(c.cp_world_size > 0, all_single(c) ? ANYATTN_FEATURE_CP_DECODE : ANYATTN_FEATURE_CP_PREFILL);
  const bool merges = c.cp_world_size > 0 || c.kind == Kind::kMlaPrefill || c.kind == Kind::kMerge;
  add(c.lse_base != 0 || merges, ANYATTN_FEATURE_LSE);
  add(c.invariant, ANYATTN_FEATURE_BATCH_INVARIANT);
  add(!c.kv_scales.empty(), c.head_scales ? ANYATTN_FEATURE_KV_SCALES_PER_HEAD : ANYATTN_FEATURE_KV_SCALES);
  add(c.out_scale > 0, ANYATTN_FEATURE_OUT_SCALE);
  add(c.q_scale > 0, ANYATTN_FEATURE_QUANTISED_QUERY);
  add(is_mla(c), ANYATTN_FEATURE_MLA);
  add(c.kv_transfer, ANYATTN_FEATURE_KV_TRANSFER);
  add(c.graph_level >= 0, ANYATTN_FEATURE_GRAPH);
  return features;
}

Problem::Problem(const Case& c, uint32_t rank) : kv_cache_dtype_(format_of(c).name) {
  const bool ragged = c.kind == Kind::kRagged;
  features[0] = features_of(c, rank);
  problem_.struct_size = ANYATTN_PROBLEM_SIZE;
  problem_.num_feature_words = 1;
  problem_.features = features;
  problem_.attention_type = ragged ? ANYATTN_TYPE_ENCODER_ONLY : ANYATTN_TYPE_DECODER;
  problem_.key_source = ragged ? ANYATTN_KEYS_RAGGED : ANYATTN_KEYS_PAGED;
  problem_.phase = ANYATTN_PHASE_BOTH;
  problem_.num_q_heads = static_cast<uint32_t>(c.num_q_heads);
  problem_.num_kv_heads = static_cast<uint32_t>(c.num_kv_heads);
  problem_.head_size = static_cast<uint32_t>(c.head_size);
  problem_.head_size_v = static_cast<uint32_t>(c.head_size_v > 0 ? c.head_size_v : c.head_size);
  problem_.q_dtype = q_dtype_of(c);
  problem_.out_dtype = out_dtype_of(c);
  problem_.graph_level = static_cast<uint32_t>(std::max(c.graph_level, 0));
  problem_.block_size = ragged ? 0 : static_cast<uint32_t>(c.block_size);
  problem_.kv_cache_dtype = ragged ? nullptr : kv_cache_dtype_.c_str();
  problem_.window_left = c.window_left;
  problem_.window_right = c.window_right;
  problem_.logits_soft_cap = c.soft_cap;
  problem_.chunk_size = static_cast<uint32_t>(c.chunk_size);
  problem_.top_k = static_cast<uint32_t>(c.top_k);
  problem_.cp_world_size = static_cast<uint32_t>(c.cp_world_size);
  problem_.cp_rank = rank;
  problem_.cp_interleave = static_cast<uint32_t>(c.cp_interleave);
  if (!is_mla(c)) return;
  problem_.num_kv_heads = 1;
  problem_.head_size = static_cast<uint32_t>(c.kv_lora_rank + c.rope);
  problem_.head_size_v = static_cast<uint32_t>(c.kv_lora_rank);
  problem_.kv_lora_rank = static_cast<uint32_t>(c.kv_lora_rank);
  problem_.qk_nope_head_dim = static_cast<uint32_t>(c.nope);
  problem_.qk_rope_head_dim = static_cast<uint32_t>(c.rope);
  problem_.v_head_dim = static_cast<uint32_t>(c.v_head_dim);
}

anyattn_limits limits_of(const Case& c, uint32_t block_size) {
  uint32_t tokens = static_cast<uint32_t>(c.pad_rows), query_len = 1, seq_len = 1;
  for (const RequestLens& lens : c.lens) {
    tokens += static_cast<uint32_t>(lens.query_len);
    query_len = std::max(query_len, static_cast<uint32_t>(lens.query_len));
    seq_len = std::max(seq_len, static_cast<uint32_t>(lens.key_len));
  }
  const auto given = [](uint32_t wanted, uint32_t needed) { return wanted > 0 ? wanted : std::max(needed, 1u); };
  anyattn_limits limits{};
  limits.struct_size = ANYATTN_LIMITS_SIZE;
  limits.max_num_reqs = given(c.limits.num_reqs, static_cast<uint32_t>(c.lens.size()));
  limits.max_num_tokens = given(c.limits.num_tokens, tokens);
  limits.max_query_len = given(c.limits.query_len, query_len);
  limits.max_seq_len = given(c.limits.seq_len, seq_len);
  if (block_size > 0) {
    limits.max_blocks_per_req = (limits.max_seq_len + block_size - 1) / block_size + static_cast<uint32_t>(c.surplus);
  }
  return limits;
}

anyattn_device_facts cpu_device_facts() {
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = ANYATTN_DEVICE_CPU;
  facts.num_multiprocessors = read_cpu_facts().num_cores;
  facts.warp_size = 1;
  facts.features = ANYATTN_DEVICE_HAS_HOST_MEMORY;
  facts.architecture = "cpu";
  facts.name = "conformance host";
  return facts;
}

}  // namespace anyattn::conformance
