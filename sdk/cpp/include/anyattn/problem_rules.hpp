// SPDX-License-Identifier: Apache-2.0
// What every backend asks of a problem in the same words: features that exclude each other, parameters, heads, sizes.
// Included by the file of a plugin that decides (its plan). Decides nothing that a backend could decide otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "anyattn/dtypes.hpp"
#include "anyattn/problem.hpp"

namespace anyattn {

constexpr uint64_t feature_bit(uint32_t feature) { return uint64_t{1} << feature; }

// Word 0 of the problem's features.
inline uint64_t feature_word(const anyattn_problem& problem) { return problem.num_feature_words ? problem.features[0] : 0; }

inline bool is_float_dtype(uint32_t dtype) {
  return dtype == ANYATTN_DTYPE_FLOAT32 || dtype == ANYATTN_DTYPE_FLOAT16 || dtype == ANYATTN_DTYPE_BFLOAT16;
}

inline void require_multiple_of_8(Reasons& reasons, uint32_t id, const char* field, uint32_t value, uint32_t most) {
  if (value == 0 || value % 8 != 0 || value > most) reasons.add(id, field, text(value), text("multiples of 8 up to ", most));
}

inline void refuse_exclusive_features(uint64_t features, Reasons& reasons) {
  constexpr uint32_t kPairs[][2] = {{ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_PER_REQUEST_CAUSAL},
                                    {ANYATTN_FEATURE_KV_SCALES, ANYATTN_FEATURE_KV_SCALES_PER_HEAD},
                                    {ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SQRT},
                                    {ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SYMMETRIC},
                                    {ANYATTN_FEATURE_ALIBI_SQRT, ANYATTN_FEATURE_ALIBI_SYMMETRIC}};
  for (const auto& [a, b] : kPairs) {
    if ((features & feature_bit(a)) && (features & feature_bit(b)))
      reasons.add(ANYATTN_REASON_COMBINATION, feature_name(a), text("with ", feature_name(b)), "one of the two");
  }
}

// Bounds that keep products of two sizes within 64 bits, sums of them within 32.
inline constexpr uint32_t kMostHeads = 1u << 16, kMostTokensABlock = 1u << 20;

inline void check_kv_heads(const anyattn_problem& problem, Reasons& reasons) {
  if (problem.num_q_heads > kMostHeads)
    reasons.add(ANYATTN_REASON_HEADS, "num_q_heads", text(problem.num_q_heads), text("1 to ", kMostHeads));
  if (problem.num_q_heads == 0 || problem.num_kv_heads == 0 || problem.num_q_heads % problem.num_kv_heads != 0)
    reasons.add(ANYATTN_REASON_HEADS, "num_kv_heads", text(problem.num_kv_heads, " for ", problem.num_q_heads, " q heads"),
                "a divisor of num_q_heads");
}

inline void check_phase(const anyattn_problem& problem, Reasons& reasons) {
  if (problem.phase > ANYATTN_PHASE_DECODE)
    reasons.add(ANYATTN_REASON_PHASE, "phase", text(problem.phase), "both, prefill, decode");
}

// True where keys come from args; another source than the two is a reason, and so are blocks past any size.
inline bool has_ragged_keys(const anyattn_problem& problem, Reasons& reasons) {
  if (problem.key_source == ANYATTN_KEYS_PAGED && problem.block_size > kMostTokensABlock)
    reasons.add(ANYATTN_REASON_BLOCK_SIZE, "block_size", text(problem.block_size), text("up to ", kMostTokensABlock));
  if (problem.key_source != ANYATTN_KEYS_PAGED && problem.key_source != ANYATTN_KEYS_RAGGED)
    reasons.add(ANYATTN_REASON_KEY_SOURCE, "key_source", text(problem.key_source), "paged, ragged");
  return problem.key_source == ANYATTN_KEYS_RAGGED;
}

// Floats, or E4M3 codes of whole sums with OUT_SCALE: merge_states joins the parts of sharded keys as floats.
inline void check_out_dtype(const anyattn_problem& problem, Reasons& reasons) {
  const auto has = [&](uint32_t feature) { return anyattn_problem_has(&problem, feature) != 0; };
  const bool codes = has(ANYATTN_FEATURE_OUT_SCALE);
  if (codes ? problem.out_dtype != ANYATTN_DTYPE_FLOAT8_E4M3FN : !is_float_dtype(problem.out_dtype))
    reasons.add(ANYATTN_REASON_DTYPE, "out_dtype", text(dtype_name(problem.out_dtype), codes ? " with out_scale" : ""),
                codes ? "float8_e4m3fn with out_scale" : "float32, float16, bfloat16");
  if (codes && problem.cp_world_size > 1 && (has(ANYATTN_FEATURE_CP_DECODE) || has(ANYATTN_FEATURE_CP_PREFILL)))
    reasons.add(ANYATTN_REASON_COMBINATION, "out_scale", "with sharded keys", "without",
                "merge_states joins the shards' parts as floats");
}

// What is done to scores, read where its feature is set, else at rest.
struct ScoreRules {
  enum Causality : int { kCausal = 0, kNonCausal = 1, kPerRequest = 2 };
  enum Alibi : int { kNone = 0, kLinear = 1, kSqrt = 2, kSymmetric = 3 };
  int causality = kCausal;
  int32_t window_left = -1, window_right = -1;  // -1: unlimited
  double soft_cap = 0;                          // 0: none
  int alibi = kNone;
};

inline ScoreRules read_score_rules(const anyattn_problem& problem, Reasons& reasons) {
  const auto has = [&](uint32_t feature) { return anyattn_problem_has(&problem, feature) != 0; };
  ScoreRules rules;
  rules.causality = has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) ? ScoreRules::kPerRequest
                    : has(ANYATTN_FEATURE_NON_CAUSAL)       ? ScoreRules::kNonCausal
                                                            : ScoreRules::kCausal;
  if (has(ANYATTN_FEATURE_WINDOW)) {
    constexpr int32_t kWidest = 1 << 30;  // past every position; a position and a window then add up within 32 bits
    rules.window_left = std::min(problem.window_left, kWidest);
    rules.window_right = std::min(problem.window_right, kWidest);
    if (problem.window_left < -1)
      reasons.add(ANYATTN_REASON_PARAMETER, "window_left", text(problem.window_left), "-1 (unlimited) or more");
    if (problem.window_right < -1)
      reasons.add(ANYATTN_REASON_PARAMETER, "window_right", text(problem.window_right), "-1 (unlimited) or more");
  }
  if (has(ANYATTN_FEATURE_SOFT_CAP)) {
    rules.soft_cap = problem.logits_soft_cap;
    if (!(problem.logits_soft_cap > 0) || !std::isfinite(problem.logits_soft_cap))
      reasons.add(ANYATTN_REASON_PARAMETER, "logits_soft_cap", text(problem.logits_soft_cap), "above 0");
  }
  rules.alibi = has(ANYATTN_FEATURE_ALIBI)             ? ScoreRules::kLinear
                : has(ANYATTN_FEATURE_ALIBI_SQRT)      ? ScoreRules::kSqrt
                : has(ANYATTN_FEATURE_ALIBI_SYMMETRIC) ? ScoreRules::kSymmetric
                                                       : ScoreRules::kNone;
  return rules;
}

// Which keys a rank holds (context parallel); world 1 where no CP feature is set.
struct KeyShard {
  uint32_t world = 1, rank = 0, interleave = 1;
};

inline KeyShard read_key_shard(const anyattn_problem& problem, Reasons& reasons) {
  if (!anyattn_problem_has(&problem, ANYATTN_FEATURE_CP_DECODE) && !anyattn_problem_has(&problem, ANYATTN_FEATURE_CP_PREFILL))
    return {};
  if (problem.cp_world_size == 0 || problem.cp_rank >= problem.cp_world_size || problem.cp_interleave == 0)
    reasons.add(ANYATTN_REASON_PARAMETER, "cp_rank",
                text(problem.cp_rank, " of ", problem.cp_world_size, ", interleave ", problem.cp_interleave),
                "rank below world size, interleave of at least 1");
  if (problem.key_source == ANYATTN_KEYS_RAGGED)
    reasons.add(ANYATTN_REASON_COMBINATION, "cp_world_size", "with ragged keys", "with paged keys");
  return {problem.cp_world_size, problem.cp_rank, problem.cp_interleave};
}

// Head sizes of an MLA problem against its latent sizes, and its one kv head.
inline void check_latent_heads(const anyattn_problem& problem, Reasons& reasons) {
  if (problem.head_size != problem.kv_lora_rank + problem.qk_rope_head_dim)
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size", text(problem.head_size),
                text("kv_lora_rank + qk_rope_head_dim = ", problem.kv_lora_rank + problem.qk_rope_head_dim));
  if (problem.head_size_v != problem.kv_lora_rank)
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size_v", text(problem.head_size_v),
                text("kv_lora_rank = ", problem.kv_lora_rank));
  if (problem.num_kv_heads != 1) reasons.add(ANYATTN_REASON_HEADS, "num_kv_heads", text(problem.num_kv_heads), "1 with MLA");
  if (problem.key_source == ANYATTN_KEYS_RAGGED) reasons.add(ANYATTN_REASON_KEY_SOURCE, "key_source", "ragged", "paged");
}

// The backends of a plugin that takes both kinds of layers, and how far their heads reach.
struct FamilySizes {
  const char *plain, *latent;  // names: who takes the other's layers
  uint32_t max_head_size, max_head_size_v;
};

inline void check_plain_sizes(const anyattn_problem& problem, const FamilySizes& family, Reasons& reasons) {
  if (anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA))
    reasons.add(ANYATTN_REASON_MLA, "mla", "on", "off", text(family.latent, " takes MLA layers"));
  require_multiple_of_8(reasons, ANYATTN_REASON_HEAD_SIZE, "head_size", problem.head_size, family.max_head_size);
  if (problem.head_size_v == 0 || problem.head_size_v > family.max_head_size_v)
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size_v", text(problem.head_size_v), text("1 to ", family.max_head_size_v));
}

// A latent of at most 512 values and a rope part of at most 64: a head of forward_mqa is then no longer than 576.
inline void check_latent_sizes(const anyattn_problem& problem, const FamilySizes& family, Reasons& reasons) {
  if (!anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA)) {
    reasons.add(ANYATTN_REASON_MLA, "mla", "off", "on", text(family.plain, " takes layers without MLA"));
    return;
  }
  constexpr uint32_t kId = ANYATTN_REASON_MLA_SIZE;
  require_multiple_of_8(reasons, kId, "kv_lora_rank", problem.kv_lora_rank, 512);
  require_multiple_of_8(reasons, kId, "qk_rope_head_dim", problem.qk_rope_head_dim, 64);
  require_multiple_of_8(reasons, kId, "qk_nope_head_dim", problem.qk_nope_head_dim, 512);
  if (problem.v_head_dim == 0 || problem.v_head_dim > family.max_head_size_v)
    reasons.add(kId, "v_head_dim", text(problem.v_head_dim), text("1 to ", family.max_head_size_v));
  check_latent_heads(problem, reasons);
}

}  // namespace anyattn
