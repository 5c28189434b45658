// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <string>

#include "anyattn/problem_rules.hpp"
#include "isa.h"

namespace anyattn::cpu {
namespace {

constexpr auto bit = feature_bit;

// Done for both families; KV_TRANSFER because blocks lie as the spec says and nowhere else.
constexpr uint64_t kCommonFeatures = bit(ANYATTN_FEATURE_NON_CAUSAL) | bit(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) |
                                     bit(ANYATTN_FEATURE_CP_DECODE) | bit(ANYATTN_FEATURE_LSE) |
                                     bit(ANYATTN_FEATURE_BATCH_INVARIANT) | bit(ANYATTN_FEATURE_KV_TRANSFER) |
                                     bit(ANYATTN_FEATURE_GRAPH) | bit(ANYATTN_FEATURE_MLA) | bit(ANYATTN_FEATURE_KV_SCALES);
constexpr uint64_t kPlainFeatures = kCommonFeatures | bit(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) | bit(ANYATTN_FEATURE_WINDOW) |
                                    bit(ANYATTN_FEATURE_SOFT_CAP) | bit(ANYATTN_FEATURE_ALIBI) |
                                    bit(ANYATTN_FEATURE_ALIBI_SQRT) | bit(ANYATTN_FEATURE_ALIBI_SYMMETRIC) |
                                    bit(ANYATTN_FEATURE_SINKS) | bit(ANYATTN_FEATURE_MM_PREFIX) |
                                    bit(ANYATTN_FEATURE_CP_PREFILL) | bit(ANYATTN_FEATURE_OUT_SCALE);

constexpr const char* kFloats = "float32, float16, bfloat16";
constexpr FamilySizes kSizes{"CPU_ATTN", "CPU_MLA", kMaxHeadSize, 65536};
constexpr uint32_t kMaxRotated = 512;

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
  plan.features = feature_word(problem);
  refuse_exclusive_features(plan.features, reasons);
  if (plan.has(ANYATTN_FEATURE_GRAPH) && problem.graph_level >= ANYATTN_GRAPH_SINGLE_TOKEN_DECODE)
    reasons.add(ANYATTN_REASON_GRAPH_LEVEL, "graph_level", text(problem.graph_level), text(ANYATTN_GRAPH_NEVER),
                "the CPU captures no graphs");
}

void check_parameters(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  const ScoreRules rules = read_score_rules(problem, reasons);
  plan.window_left = rules.window_left;
  plan.window_right = rules.window_right;
  plan.soft_cap = static_cast<float>(rules.soft_cap);
  plan.alibi = static_cast<AlibiKind>(rules.alibi);
  const KeyShard shard = read_key_shard(problem, reasons);
  plan.shard = {shard.world, shard.rank, shard.interleave};
}

void check_heads(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.num_q_heads = problem.num_q_heads;
  plan.num_kv_heads = problem.num_kv_heads;
  check_kv_heads(problem, reasons);
}

void check_dtypes(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.q_dtype = problem.q_dtype;
  plan.out_dtype = problem.out_dtype;
  if (!is_float_dtype(problem.q_dtype)) reasons.add(ANYATTN_REASON_DTYPE, "q_dtype", dtype_name(problem.q_dtype), kFloats);
  check_out_dtype(problem, reasons);
  plan.ragged = has_ragged_keys(problem, reasons);
  plan.block_size = plan.ragged ? 0 : problem.block_size ? problem.block_size : kPreferredBlockSize;
}

void read_sizes(const anyattn_problem& problem, bool latent, Plan& plan) {
  plan.head_size = problem.head_size;
  plan.head_size_v = problem.head_size_v;
  if (!latent) return;
  plan.kv_lora_rank = problem.kv_lora_rank;
  plan.rope = problem.qk_rope_head_dim;
  plan.mha_head_size = problem.qk_nope_head_dim + problem.qk_rope_head_dim;
  plan.mha_head_size_v = problem.v_head_dim;
}

// Units of up to kBlockRows rows, all heads of a kv head together up to kMaxRows of them: K and V are then read once.
void cut_rows(const Host& host, Plan& plan) {
  const uint32_t group = plan.num_q_heads / plan.num_kv_heads;  // 1 or more: check_kv_heads() let them through
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
  const bool latent = family == Family::kMla;
  check_features(problem, latent ? kCommonFeatures : kPlainFeatures, reasons, plan);
  check_dtypes(problem, reasons, plan);
  plan.format = check_cache_format(problem, latent, kMaxRotated, reasons);
  if (plan.ragged) plan.format = &float_format(problem.q_dtype);
  check_parameters(problem, reasons, plan);
  check_heads(problem, reasons, plan);
  (latent ? check_latent_sizes : check_plain_sizes)(problem, kSizes, reasons);
  read_sizes(problem, latent, plan);
  check_phase(problem, reasons);
  if (reasons.count() != 0) return false;
  plan.q_kind = element_kind(plan.q_dtype);
  plan.out_kind = plan.has(ANYATTN_FEATURE_OUT_SCALE) ? kE4M3 : element_kind(plan.out_dtype);
  plan.kernel_rows = rows_of(*plan.format);
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
  say_kernels(plan.kernels->name, report);
}

}  // namespace anyattn::cpu
