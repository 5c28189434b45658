// SPDX-License-Identifier: Apache-2.0
// Is this a problem that can be asked at all? Each check gives one sentence: field, value, what is allowed.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

// The struct of minor 1: a writer that knows less does not exist.
constexpr uint32_t kFirstSize = ANYATTN_END_OFFSET(anyattn_problem, graph_level);
constexpr uint32_t kMaxFeatureWords = 16;  // 1,024 bits; more is a stray number
constexpr uint32_t kMaxHeads = 1u << 16;   // bounds keep products of two sizes far from 2^64
constexpr uint32_t kMaxHeadSize = 1u << 16;
constexpr uint32_t kMaxBlockSize = 1u << 20;

bool has(const anyattn_problem& problem, uint32_t feature) { return anyattn_problem_has(&problem, feature) != 0; }

uint32_t dtype_bits(uint32_t dtype) { return (dtype >> 8) & 0xffu; }
bool is_float(uint32_t dtype) {
  return dtype == ANYATTN_DTYPE_FLOAT32 || dtype == ANYATTN_DTYPE_FLOAT16 || dtype == ANYATTN_DTYPE_BFLOAT16;
}
bool is_8_bit(uint32_t dtype) { return dtype_name(dtype) != "unknown" && dtype_bits(dtype) == 8; }

std::string out_of_range(std::string_view field, int64_t value, std::string_view allowed) {
  return fmt::format("{} {}: allowed: {}", field, value, allowed);
}

std::string check_frame(const anyattn_problem* problem) {
  if (!problem) return "problem is null: give an anyattn_problem";
  if (problem->struct_size < kFirstSize)
    return fmt::format("struct_size {} of anyattn_problem: at least {} (set it to ANYATTN_PROBLEM_SIZE)", problem->struct_size,
                       kFirstSize);
  if (problem->num_feature_words > kMaxFeatureWords)
    return out_of_range("num_feature_words", problem->num_feature_words, fmt::format("0 to {}", kMaxFeatureWords));
  if (problem->num_feature_words > 0 && !problem->features)
    return fmt::format("features is null although num_feature_words is {}", problem->num_feature_words);
  return "";
}

std::string check_words(const anyattn_problem& p) {
  if (p.attention_type > ANYATTN_TYPE_ENCODER_DECODER)
    return out_of_range("attention_type", p.attention_type, "0 to 3 (decoder, encoder, encoder_only, encoder_decoder)");
  if (p.key_source > ANYATTN_KEYS_RAGGED) return out_of_range("key_source", p.key_source, "0 (paged) or 1 (ragged)");
  if (p.phase > ANYATTN_PHASE_DECODE) return out_of_range("phase", p.phase, "0 (both), 1 (prefill) or 2 (decode)");
  return "";
}

std::string check_sizes(const anyattn_problem& p) {
  if (p.num_q_heads == 0 || p.num_q_heads > kMaxHeads)
    return out_of_range("num_q_heads", p.num_q_heads, fmt::format("1 to {}", kMaxHeads));
  if (p.num_kv_heads == 0 || p.num_q_heads % p.num_kv_heads != 0)
    return fmt::format("num_kv_heads {}: must divide num_q_heads {}", p.num_kv_heads, p.num_q_heads);
  if (p.head_size == 0 || p.head_size > kMaxHeadSize)
    return out_of_range("head_size", p.head_size, fmt::format("1 to {}", kMaxHeadSize));
  if (p.head_size_v == 0 || p.head_size_v > kMaxHeadSize)
    return out_of_range("head_size_v", p.head_size_v, fmt::format("1 to {}", kMaxHeadSize));
  return "";
}

std::string check_dtypes(const anyattn_problem& p) {
  const bool quantised_query = has(p, ANYATTN_FEATURE_QUANTISED_QUERY);
  if (quantised_query ? !is_8_bit(p.q_dtype) : !is_float(p.q_dtype))
    return fmt::format("q_dtype {} ({:#x}) {} quantised_query: allowed: {}", dtype_name(p.q_dtype), p.q_dtype,
                       quantised_query ? "with" : "without",
                       quantised_query ? "a type 8 bits wide" : "float32, float16, bfloat16");
  const bool out_scaled = has(p, ANYATTN_FEATURE_OUT_SCALE) || has(p, ANYATTN_FEATURE_OUT_BLOCK_SCALES);
  if (out_scaled ? !is_8_bit(p.out_dtype) : !is_float(p.out_dtype))
    return fmt::format("out_dtype {} ({:#x}) {} out_scale or out_block_scales: allowed: {}", dtype_name(p.out_dtype),
                       p.out_dtype, out_scaled ? "with" : "without",
                       out_scaled ? "a type 8 bits wide" : "float32, float16, bfloat16");
  return "";
}

std::string check_keys(const anyattn_problem& p) {
  if (p.key_source == ANYATTN_KEYS_RAGGED) {
    if (p.block_size != 0) return out_of_range("block_size", p.block_size, "0 where keys are ragged: there are no blocks");
    if (p.kv_cache_dtype)
      return fmt::format("kv_cache_dtype {}: must be null where keys are ragged: there is no cache", p.kv_cache_dtype);
    if (has(p, ANYATTN_FEATURE_KV_TRANSFER)) return "kv_transfer needs key_source paged: ragged keys have no blocks to read";
    if (has(p, ANYATTN_FEATURE_MLA)) return "mla needs key_source paged: it reads the latent cache";
    return "";
  }
  if (p.kv_cache_dtype && p.kv_cache_dtype[0] == '\0')
    return "kv_cache_dtype is empty: give a name, \"auto\", or null for auto";
  if (p.block_size > kMaxBlockSize)
    return out_of_range("block_size", p.block_size, fmt::format("0 (the backend's choice) to {}", kMaxBlockSize));
  return "";
}

std::string check_mla(const anyattn_problem& p) {
  if (!has(p, ANYATTN_FEATURE_MLA)) return "";
  for (const char* name : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    if (const std::string value = find_field(name)->text(p); value == "0")
      return fmt::format("{} 0: must be > 0 with mla", name);
  if (p.num_kv_heads != 1) return out_of_range("num_kv_heads", p.num_kv_heads, "1 with mla");
  if (p.head_size != uint64_t{p.kv_lora_rank} + p.qk_rope_head_dim)
    return fmt::format("head_size {}: must be kv_lora_rank {} + qk_rope_head_dim {} with mla", p.head_size, p.kv_lora_rank,
                       p.qk_rope_head_dim);
  if (p.head_size_v != p.kv_lora_rank)
    return fmt::format("head_size_v {}: must be kv_lora_rank {} with mla", p.head_size_v, p.kv_lora_rank);
  if (p.qk_nope_head_dim > kMaxHeadSize || p.v_head_dim > kMaxHeadSize)
    return fmt::format("qk_nope_head_dim {}, v_head_dim {}: at most {}", p.qk_nope_head_dim, p.v_head_dim, kMaxHeadSize);
  return "";
}

std::string check_exclusions(const anyattn_problem& p) {
  constexpr uint32_t kPairs[][2] = {
      {ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_PER_REQUEST_CAUSAL},
      {ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_CHUNKED_LOCAL},
      {ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SQRT},
      {ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SYMMETRIC},
      {ANYATTN_FEATURE_ALIBI_SQRT, ANYATTN_FEATURE_ALIBI_SYMMETRIC},
      {ANYATTN_FEATURE_KV_SCALES, ANYATTN_FEATURE_KV_SCALES_PER_HEAD},
  };
  for (const auto& [one, other] : kPairs)
    if (has(p, one) && has(p, other))
      return fmt::format("{} and {} exclude each other: set one", fields()[one].name, fields()[other].name);
  return "";
}

std::string check_parameters(const anyattn_problem& p) {
  if (has(p, ANYATTN_FEATURE_WINDOW)) {
    if (p.window_left < -1) return out_of_range("window_left", p.window_left, ">= 0, or -1 for unlimited");
    if (p.window_right < -1) return out_of_range("window_right", p.window_right, ">= 0, or -1 for unlimited");
  }
  if (has(p, ANYATTN_FEATURE_SOFT_CAP) && !(std::isfinite(p.logits_soft_cap) && p.logits_soft_cap > 0))
    return fmt::format("logits_soft_cap {}: must be finite and > 0; leave the feature soft_cap out for none",
                       p.logits_soft_cap);
  if (has(p, ANYATTN_FEATURE_CHUNKED_LOCAL) && p.chunk_size == 0) return "chunk_size 0: must be > 0 with chunked_local";
  if (has(p, ANYATTN_FEATURE_SPARSE_TOPK) && p.top_k == 0) return "top_k 0: must be > 0 with sparse_topk";
  if (has(p, ANYATTN_FEATURE_CP_DECODE) || has(p, ANYATTN_FEATURE_CP_PREFILL)) {
    if (p.cp_world_size == 0) return "cp_world_size 0: must be > 0 with cp_decode or cp_prefill";
    if (p.cp_rank >= p.cp_world_size)
      return fmt::format("cp_rank {}: must be below cp_world_size {}", p.cp_rank, p.cp_world_size);
    if (p.cp_interleave == 0) return "cp_interleave 0: must be > 0 with cp_decode or cp_prefill";
  }
  if (has(p, ANYATTN_FEATURE_OUT_BLOCK_SCALES)) {
    const uint64_t row = uint64_t{p.num_q_heads} * p.head_size_v;
    if (p.out_block_size == 0 || row % p.out_block_size != 0)
      return fmt::format("out_block_size {}: must divide num_q_heads * head_size_v = {}", p.out_block_size, row);
  }
  return "";
}

}  // namespace

std::string validate_problem(const anyattn_problem* problem) {
  if (std::string text = check_frame(problem); !text.empty()) return text;
  for (const auto check : {check_words, check_sizes, check_dtypes, check_keys, check_mla, check_exclusions, check_parameters})
    if (std::string text = check(*problem); !text.empty()) return text;
  return "";
}

}  // namespace anyattn::selector
