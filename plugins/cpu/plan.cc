// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "anyattn/dtypes.hpp"
#include "isa.h"

namespace anyattn::cpu {
namespace {

constexpr uint64_t bit(uint32_t feature) { return uint64_t{1} << feature; }

// Done for both families; KV_TRANSFER because blocks lie as the spec says and nowhere else.
constexpr uint64_t kCommonFeatures = bit(ANYATTN_FEATURE_NON_CAUSAL) | bit(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) |
                                     bit(ANYATTN_FEATURE_CP_DECODE) | bit(ANYATTN_FEATURE_LSE) |
                                     bit(ANYATTN_FEATURE_BATCH_INVARIANT) | bit(ANYATTN_FEATURE_KV_TRANSFER) |
                                     bit(ANYATTN_FEATURE_GRAPH) | bit(ANYATTN_FEATURE_MLA) | bit(ANYATTN_FEATURE_KV_SCALES);
constexpr uint64_t kPlainFeatures =
    kCommonFeatures | bit(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) | bit(ANYATTN_FEATURE_WINDOW) | bit(ANYATTN_FEATURE_SOFT_CAP) |
    bit(ANYATTN_FEATURE_ALIBI) | bit(ANYATTN_FEATURE_ALIBI_SQRT) | bit(ANYATTN_FEATURE_ALIBI_SYMMETRIC) |
    bit(ANYATTN_FEATURE_SINKS) | bit(ANYATTN_FEATURE_MM_PREFIX) | bit(ANYATTN_FEATURE_CP_PREFILL);

constexpr const char* kFloats = "float32, float16, bfloat16";

bool is_float(uint32_t dtype) {
  return dtype == ANYATTN_DTYPE_FLOAT32 || dtype == ANYATTN_DTYPE_FLOAT16 || dtype == ANYATTN_DTYPE_BFLOAT16;
}

void check_size(Reasons& reasons, uint32_t id, const char* field, uint32_t value, uint32_t most) {
  if (value == 0 || value % 8 != 0 || value > most) reasons.add(id, field, text(value), text("multiples of 8 up to ", most));
}

void check_host(const Host& host, const anyattn_device_facts& facts, Reasons& reasons, Plan& plan) {
  if (facts.device_kind != ANYATTN_DEVICE_CPU)
    reasons.add(ANYATTN_REASON_DEVICE, "device_kind", text(facts.device_kind), text(ANYATTN_DEVICE_CPU));
  const std::string isa(host.option("isa", "auto"));
  plan.kernels = choose_kernels(host, isa);
  if (!plan.kernels)
    reasons.add(ANYATTN_REASON_OPTION, "isa", isa, "auto | " + runnable_isas(host),
                "this processor runs only the sets named: set the plugin option isa to one of them");
}

void check_features(const anyattn_problem& problem, uint64_t allowed, Reasons& reasons, Plan& plan) {
  refuse_features(problem, allowed, reasons);
  plan.features = problem.num_feature_words ? problem.features[0] : 0;
  const auto exclude = [&](uint32_t a, uint32_t b) {
    if (plan.has(a) && plan.has(b))
      reasons.add(ANYATTN_REASON_COMBINATION, feature_name(a), text("with ", feature_name(b)), "one of the two");
  };
  exclude(ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_PER_REQUEST_CAUSAL);
  exclude(ANYATTN_FEATURE_KV_SCALES, ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  exclude(ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SQRT);
  exclude(ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SYMMETRIC);
  exclude(ANYATTN_FEATURE_ALIBI_SQRT, ANYATTN_FEATURE_ALIBI_SYMMETRIC);
  if (plan.has(ANYATTN_FEATURE_GRAPH) && problem.graph_level >= ANYATTN_GRAPH_SINGLE_TOKEN_DECODE)
    reasons.add(ANYATTN_REASON_GRAPH_LEVEL, "graph_level", text(problem.graph_level), text(ANYATTN_GRAPH_NEVER),
                "the CPU captures no graphs");
}

void check_parameters(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  if (plan.has(ANYATTN_FEATURE_WINDOW)) {
    plan.window_left = problem.window_left;
    plan.window_right = problem.window_right;
    if (problem.window_left < -1)
      reasons.add(ANYATTN_REASON_PARAMETER, "window_left", text(problem.window_left), "-1 (unlimited) or more");
    if (problem.window_right < -1)
      reasons.add(ANYATTN_REASON_PARAMETER, "window_right", text(problem.window_right), "-1 (unlimited) or more");
  }
  if (plan.has(ANYATTN_FEATURE_SOFT_CAP)) {
    plan.soft_cap = static_cast<float>(problem.logits_soft_cap);
    if (!(problem.logits_soft_cap > 0) || !std::isfinite(problem.logits_soft_cap))
      reasons.add(ANYATTN_REASON_PARAMETER, "logits_soft_cap", text(problem.logits_soft_cap), "above 0");
  }
  plan.alibi = plan.has(ANYATTN_FEATURE_ALIBI)             ? kAlibiLinear
               : plan.has(ANYATTN_FEATURE_ALIBI_SQRT)      ? kAlibiSqrt
               : plan.has(ANYATTN_FEATURE_ALIBI_SYMMETRIC) ? kAlibiSymmetric
                                                           : kAlibiNone;
  if (plan.has(ANYATTN_FEATURE_CP_DECODE) || plan.has(ANYATTN_FEATURE_CP_PREFILL)) {
    plan.shard = {problem.cp_world_size, problem.cp_rank, problem.cp_interleave};
    if (problem.cp_world_size == 0 || problem.cp_rank >= problem.cp_world_size || problem.cp_interleave == 0)
      reasons.add(ANYATTN_REASON_PARAMETER, "cp_rank",
                  text(problem.cp_rank, " of ", problem.cp_world_size, ", interleave ", problem.cp_interleave),
                  "rank below world size, interleave of at least 1");
    if (plan.ragged) reasons.add(ANYATTN_REASON_COMBINATION, "cp_world_size", "with ragged keys", "with paged keys");
  }
}

void check_heads(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.num_q_heads = problem.num_q_heads;
  plan.num_kv_heads = problem.num_kv_heads;
  if (problem.num_q_heads == 0 || problem.num_kv_heads == 0 || problem.num_q_heads % problem.num_kv_heads != 0)
    reasons.add(ANYATTN_REASON_HEADS, "num_kv_heads", text(problem.num_kv_heads, " for ", problem.num_q_heads, " q heads"),
                "a divisor of num_q_heads");
}

void check_dtypes(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.q_dtype = problem.q_dtype;
  plan.out_dtype = problem.out_dtype;
  if (!is_float(problem.q_dtype)) reasons.add(ANYATTN_REASON_DTYPE, "q_dtype", dtype_name(problem.q_dtype), kFloats);
  if (!is_float(problem.out_dtype)) reasons.add(ANYATTN_REASON_DTYPE, "out_dtype", dtype_name(problem.out_dtype), kFloats);
  if (problem.key_source != ANYATTN_KEYS_PAGED && problem.key_source != ANYATTN_KEYS_RAGGED)
    reasons.add(ANYATTN_REASON_KEY_SOURCE, "key_source", text(problem.key_source), "paged, ragged");
  plan.ragged = problem.key_source == ANYATTN_KEYS_RAGGED;
  plan.block_size = plan.ragged ? 0 : problem.block_size ? problem.block_size : kPreferredBlockSize;
}

// Powers of two that the rotation of 4-bit rows is for.
bool is_rotatable(uint32_t size) { return size >= 16 && size <= 512 && (size & (size - 1)) == 0; }

void check_format(const anyattn_problem& problem, Family family, Reasons& reasons, Plan& plan) {
  const bool latent = family == Family::kMla;
  const char* name = problem.kv_cache_dtype ? problem.kv_cache_dtype : "(none)";
  plan.format = plan.ragged ? &float_format(problem.q_dtype) : find_format(name, latent);
  if (!plan.format) {
    reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", name, format_names(latent));
    return;
  }
  if (plan.ragged) {
    if (plan.scaled()) reasons.add(ANYATTN_REASON_COMBINATION, "kv_scales", "with ragged keys", "with paged keys");
    return;
  }
  if (plan.scaled() && !plan.format->scaled_by_call())
    reasons.add(ANYATTN_REASON_COMBINATION, "kv_scales", text("with ", name), "without",
                "the rows of this format have scales of their own");
  if (plan.format->rows == kRowsInt4Scaled) {
    const auto check = [&](const char* field, uint32_t size) {
      if (!is_rotatable(size))
        reasons.add(ANYATTN_REASON_HEAD_SIZE, field, text(size, " with ", name),
                    text("powers of two from 16 to 512 with ", name),
                    "its rows are rotated by a Hadamard matrix of their size; int8_per_token_head takes the others");
    };
    check("head_size", problem.head_size);
    check("head_size_v", problem.head_size_v);
  }
  if (plan.format->rows == kRowsRecord) {
    if (problem.kv_lora_rank != 512)
      reasons.add(ANYATTN_REASON_MLA_SIZE, "kv_lora_rank", text(problem.kv_lora_rank, " with ", name), text("512 with ", name));
    if (problem.qk_rope_head_dim != 64)
      reasons.add(ANYATTN_REASON_MLA_SIZE, "qk_rope_head_dim", text(problem.qk_rope_head_dim, " with ", name),
                  text("64 with ", name));
    if (problem.q_dtype == ANYATTN_DTYPE_FLOAT32)
      reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", text(name, " with q_dtype float32"),
                  text(name, " with q_dtype float16, bfloat16"));
  }
}

void check_plain_sizes(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  if (plan.has(ANYATTN_FEATURE_MLA)) reasons.add(ANYATTN_REASON_MLA, "mla", "on", "off", "CPU_MLA takes MLA layers");
  plan.head_size = problem.head_size;
  plan.head_size_v = problem.head_size_v;
  check_size(reasons, ANYATTN_REASON_HEAD_SIZE, "head_size", problem.head_size, kMaxHeadSize);
  if (problem.head_size_v == 0 || problem.head_size_v > 65536)
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size_v", text(problem.head_size_v), "1 to 65536");
}

void check_mla_sizes(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  if (!plan.has(ANYATTN_FEATURE_MLA)) {
    reasons.add(ANYATTN_REASON_MLA, "mla", "off", "on", "CPU_ATTN takes layers without MLA");
    return;
  }
  constexpr uint32_t kId = ANYATTN_REASON_MLA_SIZE;
  plan.kv_lora_rank = problem.kv_lora_rank;
  plan.rope = problem.qk_rope_head_dim;
  check_size(reasons, kId, "kv_lora_rank", problem.kv_lora_rank, 512);
  check_size(reasons, kId, "qk_rope_head_dim", problem.qk_rope_head_dim, 64);
  plan.mha_head_size = problem.qk_nope_head_dim + problem.qk_rope_head_dim;
  plan.mha_head_size_v = problem.v_head_dim;
  if (problem.qk_nope_head_dim == 0 || problem.qk_nope_head_dim % 8 != 0 || problem.qk_nope_head_dim > 512)
    reasons.add(kId, "qk_nope_head_dim", text(problem.qk_nope_head_dim), "multiples of 8 up to 512");
  if (problem.v_head_dim == 0 || problem.v_head_dim > 65536)
    reasons.add(kId, "v_head_dim", text(problem.v_head_dim), "1 to 65536");
  plan.head_size = problem.head_size;
  plan.head_size_v = problem.head_size_v;
  if (problem.head_size != problem.kv_lora_rank + problem.qk_rope_head_dim)
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size", text(problem.head_size),
                text("kv_lora_rank + qk_rope_head_dim = ", problem.kv_lora_rank + problem.qk_rope_head_dim));
  if (problem.head_size_v != problem.kv_lora_rank)
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size_v", text(problem.head_size_v),
                text("kv_lora_rank = ", problem.kv_lora_rank));
  if (problem.num_kv_heads != 1) reasons.add(ANYATTN_REASON_HEADS, "num_kv_heads", text(problem.num_kv_heads), "1 with MLA");
  if (plan.ragged) reasons.add(ANYATTN_REASON_KEY_SOURCE, "key_source", "ragged", "paged");
}

// Units of up to kBlockRows rows, all heads of a kv head together up to kMaxRows of them: K and V are then read once.
void cut_rows(const Host& host, Plan& plan) {
  const uint32_t group = plan.num_q_heads / plan.num_kv_heads;
  const uint32_t pieces = (group + kMaxRows - 1) / kMaxRows;
  plan.unit_heads = (group + pieces - 1) / pieces;
  plan.head_units = plan.num_kv_heads * ((group + plan.unit_heads - 1) / plan.unit_heads);
  plan.unit_tokens = std::max(1u, static_cast<uint32_t>(kBlockRows) / plan.unit_heads);
  plan.num_workers = host.num_workers();
  const bool one_split = plan.has(ANYATTN_FEATURE_BATCH_INVARIANT) || plan.num_workers == 1;
  plan.max_parts = one_split ? 0 : 8 * plan.num_workers;
}

}  // namespace

ElementKind element_kind(uint32_t dtype) {
  return dtype == ANYATTN_DTYPE_FLOAT16 ? kF16 : dtype == ANYATTN_DTYPE_BFLOAT16 ? kBF16 : kF32;
}

AttendFn Plan::own_kernel(RowFormat rows) const {
  for (const Kernels* set = kernels; set; set = set->base) {
    if (q_kind == kBF16 && set->attend_bf16[rows]) return set->attend_bf16[rows];
    if (set->attend[rows]) return set->attend[rows];
  }
  return nullptr;
}

AttendFn Plan::attend_rows(RowFormat rows) const {
  const AttendFn own = own_kernel(rows);
  return own ? own : own_kernel(kRowsF32);  // with load_row()
}

bool choose_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                 Reasons& reasons, Plan& plan) {
  check_host(host, facts, reasons, plan);
  check_features(problem, family == Family::kMla ? kCommonFeatures : kPlainFeatures, reasons, plan);
  check_dtypes(problem, reasons, plan);
  check_format(problem, family, reasons, plan);
  check_parameters(problem, reasons, plan);
  check_heads(problem, reasons, plan);
  if (family == Family::kMla)
    check_mla_sizes(problem, reasons, plan);
  else
    check_plain_sizes(problem, reasons, plan);
  if (problem.phase > ANYATTN_PHASE_DECODE)
    reasons.add(ANYATTN_REASON_PHASE, "phase", text(problem.phase), "both, prefill, decode");
  if (reasons.count() != 0) return false;
  plan.q_kind = element_kind(plan.q_dtype);
  plan.out_kind = element_kind(plan.out_dtype);
  plan.kernel_rows = plan.format->rows;
  if (plan.kernel_rows == kRowsInt4Scaled && plan.head_size == plan.head_size_v) {
    const RowFormat rotated = plan.head_size == 64 ? kRowsInt4Of64 : plan.head_size == 128 ? kRowsInt4Of128 : kRowsInt4Scaled;
    plan.rotated = rotated != kRowsInt4Scaled && plan.own_kernel(rotated);
    if (plan.rotated) plan.kernel_rows = rotated;
  }
  cut_rows(host, plan);
  return true;
}

Plan require_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem) {
  const ReasonText all;
  Reasons reasons(all.sink());
  Plan plan;
  if (!choose_plan(family, host, facts, problem, reasons, plan)) throw Error(ANYATTN_UNSUPPORTED, all.get());
  return plan;
}

void fill_report(const Plan& plan, anyattn_support_report& report) {
  report.block_size = plan.block_size;
  report.block_size_multiple = plan.ragged ? 0 : 1;
  report.query_lengths = ANYATTN_QUERY_ANY;
  report.graph_level = ANYATTN_GRAPH_NEVER;
  report.lse_bases = plan.has(ANYATTN_FEATURE_LSE) ? ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2 : 0;
  report.needs_host_lengths = 0;
}

}  // namespace anyattn::cpu
