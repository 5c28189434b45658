// SPDX-License-Identifier: Apache-2.0
#include "problem_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <variant>

#include "common/runtime.h"

namespace anyattn::tools {
namespace {

struct Word {
  const char* name;
  uint32_t value;
};
constexpr Word kTypes[] = {{"decoder", ANYATTN_TYPE_DECODER},
                           {"encoder", ANYATTN_TYPE_ENCODER},
                           {"encoder_only", ANYATTN_TYPE_ENCODER_ONLY},
                           {"encoder_decoder", ANYATTN_TYPE_ENCODER_DECODER}};
constexpr Word kSources[] = {{"paged", ANYATTN_KEYS_PAGED}, {"ragged", ANYATTN_KEYS_RAGGED}};
constexpr Word kPhases[] = {{"both", ANYATTN_PHASE_BOTH}, {"prefill", ANYATTN_PHASE_PREFILL}, {"decode", ANYATTN_PHASE_DECODE}};
constexpr Word kGraphLevels[] = {{"never", ANYATTN_GRAPH_NEVER},
                                 {"single_token_decode", ANYATTN_GRAPH_SINGLE_TOKEN_DECODE},
                                 {"uniform_batch", ANYATTN_GRAPH_UNIFORM_BATCH},
                                 {"always", ANYATTN_GRAPH_ALWAYS}};

constexpr int kNoFeature = -1;
constexpr int kNeedsCp = -2;  // read with cp_decode or cp_prefill, which must be named: it turns neither on

using Member = std::variant<std::monostate, uint32_t anyattn_problem::*, int32_t anyattn_problem::*, double anyattn_problem::*>;

struct Row {
  const char* name;
  Member member;                // none: a feature without parameter
  int feature;                  // that the flag turns on
  std::span<const Word> words;  // of a member that is a choice
  const char* help;
};

using P = anyattn_problem;
const Row kRows[] = {
    {"num_q_heads", &P::num_q_heads, kNoFeature, {}, "query heads (32)"},
    {"num_kv_heads", &P::num_kv_heads, kNoFeature, {}, "key/value heads (as many as query heads; 1 with MLA)"},
    {"head_size", &P::head_size, kNoFeature, {}, "of q and k"},
    {"head_size_v", &P::head_size_v, kNoFeature, {}, "of v and out (head_size)"},
    {"attention_type", &P::attention_type, kNoFeature, kTypes, "a label for rules (decoder)"},
    {"key_source", &P::key_source, kNoFeature, kSources, "cache, or tensors in the call (paged)"},
    {"phase", &P::phase, kNoFeature, kPhases, "rows it will see (both)"},
    {"non_causal", {}, ANYATTN_FEATURE_NON_CAUSAL, {}, "every key is visible"},
    {"per_request_causal", {}, ANYATTN_FEATURE_PER_REQUEST_CAUSAL, {}, "each request says whether it is causal"},
    {"window_left", &P::window_left, ANYATTN_FEATURE_WINDOW, {}, "keys to the left besides the own one; -1 unlimited"},
    {"window_right", &P::window_right, ANYATTN_FEATURE_WINDOW, {}, "keys to the right where not causal; -1 unlimited"},
    {"logits_soft_cap", &P::logits_soft_cap, ANYATTN_FEATURE_SOFT_CAP, {}, "scores become c * tanh(s / c)"},
    {"alibi", {}, ANYATTN_FEATURE_ALIBI, {}, "linear ALiBi slopes"},
    {"alibi_sqrt", {}, ANYATTN_FEATURE_ALIBI_SQRT, {}, "ALiBi over the square root of the distance"},
    {"alibi_symmetric", {}, ANYATTN_FEATURE_ALIBI_SYMMETRIC, {}, "ALiBi to both sides, for encoders"},
    {"sinks", {}, ANYATTN_FEATURE_SINKS, {}, "one extra logit a query head"},
    {"mm_prefix", {}, ANYATTN_FEATURE_MM_PREFIX, {}, "spans that see each other both ways"},
    {"top_k", &P::top_k, ANYATTN_FEATURE_SPARSE_TOPK, {}, "sparse: indices a row"},
    {"chunk_size", &P::chunk_size, ANYATTN_FEATURE_CHUNKED_LOCAL, {}, "chunked local attention, tokens"},
    {"cp_decode", {}, ANYATTN_FEATURE_CP_DECODE, {}, "context parallel, decode requests"},
    {"cp_prefill", {}, ANYATTN_FEATURE_CP_PREFILL, {}, "context parallel, any request"},
    {"cp_world_size", &P::cp_world_size, kNeedsCp, {}, "ranks"},
    {"cp_rank", &P::cp_rank, kNeedsCp, {}, "this rank"},
    {"cp_interleave", &P::cp_interleave, kNeedsCp, {}, "tokens dealt to a rank in a row (1)"},
    {"lse", {}, ANYATTN_FEATURE_LSE, {}, "log-sum-exp wanted"},
    {"batch_invariant", {}, ANYATTN_FEATURE_BATCH_INVARIANT, {}, "a row's bits do not depend on its batch"},
    {"quantised_query", {}, ANYATTN_FEATURE_QUANTISED_QUERY, {}, "queries in float8_e4m3fn with a scale"},
    {"kv_scales", {}, ANYATTN_FEATURE_KV_SCALES, {}, "one scale for k, one for v"},
    {"kv_scales_per_head", {}, ANYATTN_FEATURE_KV_SCALES_PER_HEAD, {}, "one scale a kv head"},
    {"out_scale", {}, ANYATTN_FEATURE_OUT_SCALE, {}, "output in float8_e4m3fn with a scale"},
    {"out_block_size", &P::out_block_size, ANYATTN_FEATURE_OUT_BLOCK_SCALES, {}, "output in float8_e4m3fn, values a scale"},
    {"kv_lora_rank", &P::kv_lora_rank, ANYATTN_FEATURE_MLA, {}, "MLA: latent size"},
    {"qk_nope_head_dim", &P::qk_nope_head_dim, ANYATTN_FEATURE_MLA, {}, "MLA (128)"},
    {"qk_rope_head_dim", &P::qk_rope_head_dim, ANYATTN_FEATURE_MLA, {}, "MLA (64)"},
    {"v_head_dim", &P::v_head_dim, ANYATTN_FEATURE_MLA, {}, "MLA (128)"},
    {"kv_transfer", {}, ANYATTN_FEATURE_KV_TRANSFER, {}, "another process reads the blocks"},
    {"graph_level", &P::graph_level, ANYATTN_FEATURE_GRAPH, kGraphLevels, "the lowest level that will do"},
};

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::string choices(std::span<const Word> words, const char* separator) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : separator) + std::string(word.name);
  return text;
}

template <class T>
T number_of(const Row& row, const std::string& text, const char* allowed) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw Failure(kExitUsage, fmt::format("{} {}: allowed: {}", flag_of(row.name), text, allowed));
  }
  return value;
}

uint32_t word_of(const Row& row, const std::string& text) {
  for (const Word& word : row.words) {
    if (text == word.name) return word.value;
  }
  throw Failure(kExitUsage, fmt::format("{} {}: allowed: {}", flag_of(row.name), text, choices(row.words, ", ")));
}

void set(anyattn_problem& problem, const Row& row, const std::string& text) {
  if (const auto* count = std::get_if<uint32_t P::*>(&row.member)) {
    problem.*(*count) = row.words.empty() ? number_of<uint32_t>(row, text, "a whole number from 0 on") : word_of(row, text);
  } else if (const auto* integer = std::get_if<int32_t P::*>(&row.member)) {
    problem.*(*integer) = number_of<int32_t>(row, text, "a whole number");
  } else if (const auto* number = std::get_if<double P::*>(&row.member)) {
    problem.*(*number) = number_of<double>(row, text, "a number");
  }
}

uint32_t or_default(uint32_t value, uint32_t fallback) { return value != 0 ? value : fallback; }

}  // namespace

std::vector<ProblemFlag> problem_flags() {
  std::vector<ProblemFlag> flags;
  for (const Row& row : kRows) {
    const bool number = std::holds_alternative<double P::*>(row.member);
    std::string value = std::holds_alternative<std::monostate>(row.member) ? "" : number ? "X" : "N";
    if (!row.words.empty()) value = choices(row.words, "|");
    flags.push_back({row.name, value, row.help});
  }
  return flags;
}

Problem problem_of(const std::vector<std::pair<std::string, std::string>>& flags, const TargetOptions& target) {
  Problem problem;
  anyattn_problem& fields = problem.fields;
  fields.window_left = fields.window_right = -1;
  std::string needs_cp;
  for (const auto& flag : flags) {
    const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return flag.first == r.name; });
    if (row == std::end(kRows))
      throw Failure(kExitUsage, fmt::format("{}: the problem has no such field", flag_of(flag.first)));
    set(fields, *row, flag.second);
    if (row->feature >= 0) problem.set(static_cast<uint32_t>(row->feature));
    if (row->feature == kNeedsCp) needs_cp = flag.first;
  }
  const bool cp = problem.has(ANYATTN_FEATURE_CP_DECODE) || problem.has(ANYATTN_FEATURE_CP_PREFILL);
  if (!needs_cp.empty() && !cp) {
    throw Failure(kExitUsage, fmt::format("{}: name --cp-decode or --cp-prefill with it", flag_of(needs_cp)));
  }
  if (cp) fields.cp_interleave = or_default(fields.cp_interleave, 1);

  const bool mla = problem.has(ANYATTN_FEATURE_MLA);
  fields.num_q_heads = or_default(fields.num_q_heads, 32);
  fields.num_kv_heads = or_default(fields.num_kv_heads, mla ? 1 : fields.num_q_heads);
  if (mla) {
    fields.qk_nope_head_dim = or_default(fields.qk_nope_head_dim, 128);
    fields.qk_rope_head_dim = or_default(fields.qk_rope_head_dim, 64);
    fields.v_head_dim = or_default(fields.v_head_dim, 128);
    fields.head_size = or_default(fields.head_size, fields.kv_lora_rank + fields.qk_rope_head_dim);
    fields.head_size_v = or_default(fields.head_size_v, fields.kv_lora_rank);
  }
  fields.head_size_v = or_default(fields.head_size_v, fields.head_size);
  if (fields.head_size == 0) {
    throw Failure(kExitUsage, "name a model (--model ID) or a problem (--head-size N, or --kv-lora-rank N for MLA)");
  }
  fields.q_dtype = fields.out_dtype = dtype_of(target.dtype, ANYATTN_DTYPE_BFLOAT16);
  if (problem.has(ANYATTN_FEATURE_QUANTISED_QUERY)) fields.q_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN;
  if (problem.has(ANYATTN_FEATURE_OUT_SCALE) || problem.has(ANYATTN_FEATURE_OUT_BLOCK_SCALES)) {
    fields.out_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN;
  }
  if (fields.key_source == ANYATTN_KEYS_PAGED) problem.kv_cache_dtype("auto");
  return on_target(std::move(problem), target);
}

Problem on_target(Problem problem, const TargetOptions& target) {
  if (problem.fields.key_source != ANYATTN_KEYS_PAGED) return problem;
  if (target.block_size != 0) problem.fields.block_size = target.block_size;
  if (!target.kv_cache_dtype.empty()) problem.kv_cache_dtype(target.kv_cache_dtype);
  return problem;
}

}  // namespace anyattn::tools
