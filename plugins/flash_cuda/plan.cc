// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "anyattn/problem_rules.hpp"
#include "cascade.h"
#include "lacks.h"

namespace anyattn::flash {
namespace {

constexpr uint64_t kFeatures =
    feature_bit(ANYATTN_FEATURE_NON_CAUSAL) | feature_bit(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) |
    feature_bit(ANYATTN_FEATURE_WINDOW) | feature_bit(ANYATTN_FEATURE_SOFT_CAP) | feature_bit(ANYATTN_FEATURE_ALIBI) |
    feature_bit(ANYATTN_FEATURE_ALIBI_SQRT) | feature_bit(ANYATTN_FEATURE_ALIBI_SYMMETRIC) |
    feature_bit(ANYATTN_FEATURE_SINKS) | feature_bit(ANYATTN_FEATURE_LSE) | feature_bit(ANYATTN_FEATURE_BATCH_INVARIANT) |
    feature_bit(ANYATTN_FEATURE_KV_TRANSFER) | feature_bit(ANYATTN_FEATURE_GRAPH) | feature_bit(ANYATTN_FEATURE_KV_SCALES) |
    feature_bit(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) | feature_bit(ANYATTN_FEATURE_QUANTISED_QUERY);

constexpr uint32_t kPreferredBlockSize = 64, kMaxHeadSize = 256;

bool is_half(uint32_t dtype) { return dtype == ANYATTN_DTYPE_FLOAT16 || dtype == ANYATTN_DTYPE_BFLOAT16; }

Dtype dtype_of(uint32_t dtype) {
  if (dtype == ANYATTN_DTYPE_FLOAT8_E4M3FN) return kE4M3;
  return dtype == ANYATTN_DTYPE_FLOAT16 ? kF16 : dtype == ANYATTN_DTYPE_BFLOAT16 ? kBF16 : kF32;
}

std::string_view cascade_option(const Host& host) { return host.option("cascade", "auto"); }

void check_device(const Host& host, const anyattn_device_facts& facts, Reasons& reasons, Plan& plan) {
  if (facts.device_kind != ANYATTN_DEVICE_CUDA) {
    reasons.add(ANYATTN_REASON_DEVICE, "device_kind", text(facts.device_kind), text(ANYATTN_DEVICE_CUDA));
    return;
  }
  // The plugin carries machine code of 8.x and 9.x, which runs on no other major.
  if (facts.arch_major != 8 && facts.arch_major != 9)
    reasons.add(ANYATTN_REASON_DEVICE, "architecture", facts.architecture, "sm_80 to sm_90", "PORTABLE_ATTN takes newer ones");
  const auto kernels = host.option("kernels", "auto");
  if (kernels != "auto" && kernels != "sm80")
    reasons.add(ANYATTN_REASON_OPTION, "kernels", std::string(kernels), "auto | sm80");
  const auto cascade = cascade_option(host);
  if (cascade != "auto" && cascade != "off" && cascade != "always")
    reasons.add(ANYATTN_REASON_OPTION, "cascade", std::string(cascade), "auto | off | always");
  plan.device = {static_cast<int>(facts.arch_major), static_cast<int>(facts.arch_minor),
                 static_cast<int>(facts.num_multiprocessors), static_cast<int>(facts.shared_memory_per_block)};
}

void check_dtypes(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.q_dtype = problem.q_dtype;
  plan.out_dtype = problem.out_dtype;
  plan.problem.dtype = plan.problem.kv_dtype = dtype_of(problem.q_dtype);
  plan.problem.out_dtype = dtype_of(problem.out_dtype);
  plan.new_kv_dtype = plan.quantised_query() ? problem.out_dtype : problem.q_dtype;
  if (plan.quantised_query()) {
    if (problem.q_dtype != ANYATTN_DTYPE_FLOAT8_E4M3FN)
      reasons.add(ANYATTN_REASON_DTYPE, "q_dtype", dtype_name(problem.q_dtype), "float8_e4m3fn with quantised_query");
    if (!is_half(problem.out_dtype))
      reasons.add(ANYATTN_REASON_DTYPE, "out_dtype", dtype_name(problem.out_dtype), "float16, bfloat16 with quantised_query");
    return;
  }
  if (!is_half(problem.q_dtype))
    reasons.add(ANYATTN_REASON_DTYPE, "q_dtype", dtype_name(problem.q_dtype), "float16, bfloat16",
                problem.q_dtype == ANYATTN_DTYPE_FLOAT32 ? "the matrix units have no float32; PORTABLE_ATTN takes it" : "");
  if (!is_float_dtype(problem.out_dtype))
    reasons.add(ANYATTN_REASON_DTYPE, "out_dtype", dtype_name(problem.out_dtype), "float32, float16, bfloat16");
}

void check_cache(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.ragged = has_ragged_keys(problem, reasons);
  const std::string format = plan.ragged ? "" : problem.kv_cache_dtype ? problem.kv_cache_dtype : "(none)";
  const bool codes = format == "fp8" || format == "fp8_e4m3";
  const bool scaled = plan.has(ANYATTN_FEATURE_KV_SCALES) || plan.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  if (scaled && !codes)
    reasons.add(ANYATTN_REASON_COMBINATION, "kv_scales", plan.ragged ? "with ragged keys" : "with " + format, "with fp8_e4m3");
  if (plan.ragged) return;
  const bool hopper = plan.device.arch_major == 9;
  const uint32_t cache_dtype = codes ? ANYATTN_DTYPE_FLOAT8_E4M3FN : dtype_of_float_name(format);
  if (plan.quantised_query()) {
    if (!codes || !hopper)
      reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", format,
                  text("fp8_e4m3 with quantised_query", hopper ? "" : " on sm_90"));
  } else if (codes ? !hopper : is_half(problem.q_dtype) ? cache_dtype != problem.q_dtype : !is_float_dtype(cache_dtype)) {
    // A query's dtype that is refused allows nothing here; its own reason says what to give, and the cache follows it.
    reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", format,
                text(is_half(problem.q_dtype) ? dtype_name(problem.q_dtype) : "float16, bfloat16",
                     hopper ? ", fp8_e4m3" : "; fp8_e4m3 on sm_90"));
  }
  if (codes) plan.problem.kv_dtype = kE4M3;
  const uint32_t block_size = problem.block_size ? problem.block_size : kPreferredBlockSize;
  plan.cache = {codes ? ANYATTN_DTYPE_FLOAT8_E4M3FN : problem.q_dtype, block_size, problem.num_kv_heads, problem.head_size,
                problem.head_size_v};
  plan.problem.block_size = static_cast<int>(block_size);
  plan.problem.head_major = 1;
}

void check_parameters(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  const ScoreRules rules = read_score_rules(problem, reasons);
  plan.problem.causality = rules.causality;
  plan.problem.window_left = rules.window_left;
  plan.problem.window_right = rules.window_right;
  plan.problem.soft_cap = static_cast<float>(rules.soft_cap);
  plan.problem.alibi = rules.alibi;
  plan.problem.sinks = plan.has(ANYATTN_FEATURE_SINKS);
  plan.problem.invariant = plan.has(ANYATTN_FEATURE_BATCH_INVARIANT);
  plan.problem.lse = plan.has(ANYATTN_FEATURE_LSE);
}

void check_heads(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  check_kv_heads(problem, reasons);
  if (anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA)) return;  // named already; its sizes are another family's
  require_multiple_of_8(reasons, ANYATTN_REASON_HEAD_SIZE, "head_size", problem.head_size, kMaxHeadSize);
  require_multiple_of_8(reasons, ANYATTN_REASON_HEAD_SIZE, "head_size_v", problem.head_size_v, kMaxHeadSize);
  plan.problem.head_size = static_cast<int>(problem.head_size);
  plan.problem.head_size_v = static_cast<int>(problem.head_size_v);
  plan.problem.num_q_heads = static_cast<int>(problem.num_q_heads);
  plan.problem.num_kv_heads = static_cast<int>(problem.num_kv_heads);
}

struct Candidate {
  const Family* family;
  const char* (*lacks)(const Device&, const Problem&);  // null: the general path
};
constexpr Candidate kDecode[] = {{&kSm90Decode, sm90_decode_lacks}, {&kSm80Decode, nullptr}};  // best first
constexpr Candidate kPrefill[] = {{&kSm90Prefill, sm90_prefill_lacks}, {&kSm80Prefill, nullptr}};

bool general_only(const Host& host) { return host.option("kernels", "auto") == "sm80"; }

// Queries of 8 bits have one family, Hopper's prefill, and what it does not do is refused.
void check_quantised_query(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                           Reasons& reasons, const Plan& plan) {
  if (!plan.quantised_query()) return;
  const auto refuse = [&](const char* field, const std::string& value, const char* allowed) {
    reasons.add(ANYATTN_REASON_COMBINATION, field, value, text(allowed, " with quantised_query"));
  };
  if (plan.device.arch_major == 8) refuse("architecture", facts.architecture, "sm_90");
  if (general_only(host)) refuse("kernels", "sm80", "auto");
  if (plan.ragged) refuse("key_source", "ragged", "paged");
  if (plan.problem.alibi != kAlibiNone) refuse("alibi", "on", "off");
  if (!plan.ragged && plan.problem.block_size % 8 != 0) refuse("block_size", text(plan.problem.block_size), "multiples of 8");
  const auto check_size = [&](const char* field, uint32_t size) {
    if (size % 16 != 0 || size > 128) refuse(field, text(size), "multiples of 16 up to 128");
  };
  check_size("head_size", problem.head_size);
  check_size("head_size_v", problem.head_size_v);
}

}  // namespace

std::string describe_kernels(const Plan& plan) {
  std::string line = plan.families[0]->name;
  if (plan.num_lanes > 1)
    line += text(" for queries up to ", plan.longest[0], ", ", plan.families[1]->name, " for longer ones");
  for (int i = 0; i < plan.num_lanes; ++i) {
    const bool decodes = std::ranges::find(kDecode, plan.families[i], &Candidate::family) != std::end(kDecode);
    for (const Candidate& better : decodes ? kDecode : kPrefill) {
      if (better.family == plan.families[i]) break;
      const char* lacks = better.lacks(plan.device, plan.problem);
      line += text("; ", better.family->name, lacks ? " needs " : " is left out by kernels: sm80", lacks ? lacks : "");
    }
  }
  return line;
}

std::string describe_cascade(const Plan& plan) {
  if (!plan.cascade) return text("no cascade: ", plan.no_cascade);
  if (plan.always_cascade) return "cascade always";
  const CascadeModel model = cascade_model(plan.device, plan.problem);
  int keys = 2048, requests = 1;
  while (keys < CascadeModel::kMostKeys && !model.pays(CascadeModel::kMostRequests, CascadeModel::kMostRequests, keys))
    keys *= 2;
  while (!model.pays(requests, requests, keys)) ++requests;  // ends: choose_cascade() has asked ever_pays()
  return text("cascade from ", requests, " requests that share ", keys, " tokens");
}

void choose_families(const Host& host, Plan& plan) {
  plan.num_lanes = 0;
  const auto take = [&](auto& families) {
    for (const auto& [family, lacks] : families) {
      if (general_only(host) && lacks) continue;
      const int longest = family->longest_query(plan.device, plan.problem);
      if (longest == 0) continue;
      plan.families[plan.num_lanes] = family;
      plan.longest[plan.num_lanes++] = longest;
      return;
    }
  };
  take(kDecode);
  if (plan.num_lanes == 0 || plan.longest[0] != kAnyQuery) take(kPrefill);
}

namespace {

// Asked in this order, so that the reason is the one a user can change first.
void choose_cascade(const Host& host, Plan& plan) {
  const auto option = cascade_option(host);
  plan.always_cascade = option == "always";
  plan.no_cascade = option == "off"                                              ? "option cascade"
                    : plan.problem.invariant                                     ? "batch_invariant"
                    : plan.ragged                                                ? "ragged keys"
                    : plan.problem.alibi != kAlibiNone                           ? "alibi"
                    : kSm80Cascade.longest_query(plan.device, plan.problem) == 0 ? "no kernel"
                                                                                 : nullptr;
  if (!plan.no_cascade && option == "auto") {
    plan.no_cascade = cascade_unmeasured(plan.device, plan.problem);
    if (!plan.no_cascade && !cascade_model(plan.device, plan.problem).ever_pays()) plan.no_cascade = "it never pays";
  }
  plan.cascade = plan.no_cascade ? nullptr : &kSm80Cascade;
}

}  // namespace

bool choose_plan(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                 Plan& plan) {
  check_device(host, facts, reasons, plan);
  plan.features = feature_word(problem);
  if (plan.has(ANYATTN_FEATURE_MLA)) reasons.add(ANYATTN_REASON_MLA, "mla", "on", "off", "FLASH_MLA takes MLA layers");
  refuse_features(problem, kFeatures | feature_bit(ANYATTN_FEATURE_MLA), reasons);
  refuse_exclusive_features(plan.features, reasons);
  check_dtypes(problem, reasons, plan);
  check_cache(problem, reasons, plan);
  check_parameters(problem, reasons, plan);
  check_heads(problem, reasons, plan);
  check_quantised_query(host, facts, problem, reasons, plan);
  check_phase(problem, reasons);
  if (reasons.count() != 0) return false;
  choose_families(host, plan);
  choose_cascade(host, plan);
  return true;
}

Plan require_plan(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem) {
  const ReasonText all;
  Reasons reasons(all.sink());
  Plan plan;
  if (!choose_plan(host, facts, problem, reasons, plan)) throw Error(ANYATTN_UNSUPPORTED, all.get());
  return plan;
}

void fill_report(const Plan& plan, anyattn_support_report& report) {
  report.block_size = static_cast<uint32_t>(plan.problem.block_size);
  report.block_size_multiple = plan.ragged ? 0 : 1;
  report.query_lengths = ANYATTN_QUERY_ANY;
  report.graph_level = ANYATTN_GRAPH_ALWAYS;
  report.lse_bases = plan.has(ANYATTN_FEATURE_LSE) ? ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2 : 0;
  report.needs_host_lengths = 0;
  say_kernels(text(describe_kernels(plan), "; ", describe_cascade(plan)), report);
}

Limits limits_of(const anyattn_limits& limits) {
  return {static_cast<int>(limits.max_num_reqs), static_cast<int>(limits.max_num_tokens),
          static_cast<int>(limits.max_query_len), static_cast<int>(limits.max_seq_len),
          static_cast<int>(limits.max_blocks_per_req)};
}

}  // namespace anyattn::flash
