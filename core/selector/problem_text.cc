// SPDX-License-Identifier: Apache-2.0
#include "selector/problem_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>

#include "anyattn/attention.h"
#include "anyattn/backend.h"

namespace anyattn::selector {
namespace {

constexpr Word kAttentionTypes[] = {{"decoder", ANYATTN_TYPE_DECODER},
                                    {"encoder", ANYATTN_TYPE_ENCODER},
                                    {"encoder_only", ANYATTN_TYPE_ENCODER_ONLY},
                                    {"encoder_decoder", ANYATTN_TYPE_ENCODER_DECODER}};
constexpr Word kKeySources[] = {{"paged", ANYATTN_KEYS_PAGED}, {"ragged", ANYATTN_KEYS_RAGGED}};
constexpr Word kPhases[] = {{"both", ANYATTN_PHASE_BOTH}, {"prefill", ANYATTN_PHASE_PREFILL}, {"decode", ANYATTN_PHASE_DECODE}};
// Ascending: an unknown level reads as the next lower one.
constexpr Word kGraphLevels[] = {{"never", ANYATTN_GRAPH_NEVER},
                                 {"single_token_decode", ANYATTN_GRAPH_SINGLE_TOKEN_DECODE},
                                 {"uniform_batch", ANYATTN_GRAPH_UNIFORM_BATCH},
                                 {"always", ANYATTN_GRAPH_ALWAYS}};
constexpr Word kQueryLengths[] = {
    {"single", ANYATTN_QUERY_SINGLE}, {"uniform", ANYATTN_QUERY_UNIFORM}, {"any", ANYATTN_QUERY_ANY}};
constexpr Word kDtypes[] = {{"float32", ANYATTN_DTYPE_FLOAT32},
                            {"float16", ANYATTN_DTYPE_FLOAT16},
                            {"bfloat16", ANYATTN_DTYPE_BFLOAT16},
                            {"float8_e4m3fn", ANYATTN_DTYPE_FLOAT8_E4M3FN},
                            {"float8_e5m2", ANYATTN_DTYPE_FLOAT8_E5M2},
                            {"int8", ANYATTN_DTYPE_INT8},
                            {"uint8", ANYATTN_DTYPE_UINT8},
                            {"int32", ANYATTN_DTYPE_INT32},
                            {"int64", ANYATTN_DTYPE_INT64}};
constexpr Word kPlaneRoles[] = {{"k", ANYATTN_PLANE_K},
                                {"v", ANYATTN_PLANE_V},
                                {"k_scale", ANYATTN_PLANE_K_SCALE},
                                {"v_scale", ANYATTN_PLANE_V_SCALE},
                                {"latent", ANYATTN_PLANE_LATENT},
                                {"latent_c", ANYATTN_PLANE_LATENT_C},
                                {"latent_pe", ANYATTN_PLANE_LATENT_PE},
                                {"latent_scale", ANYATTN_PLANE_LATENT_SCALE}};
constexpr Word kReasons[] = {{"core", 0},
                             {"feature_unknown", ANYATTN_REASON_FEATURE_UNKNOWN},
                             {"feature", ANYATTN_REASON_FEATURE},
                             {"head_size", ANYATTN_REASON_HEAD_SIZE},
                             {"heads", ANYATTN_REASON_HEADS},
                             {"dtype", ANYATTN_REASON_DTYPE},
                             {"kv_cache_dtype", ANYATTN_REASON_KV_CACHE_DTYPE},
                             {"block_size", ANYATTN_REASON_BLOCK_SIZE},
                             {"key_source", ANYATTN_REASON_KEY_SOURCE},
                             {"mla", ANYATTN_REASON_MLA},
                             {"mla_size", ANYATTN_REASON_MLA_SIZE},
                             {"phase", ANYATTN_REASON_PHASE},
                             {"graph_level", ANYATTN_REASON_GRAPH_LEVEL},
                             {"device", ANYATTN_REASON_DEVICE},
                             {"compiler", ANYATTN_REASON_COMPILER},
                             {"combination", ANYATTN_REASON_COMBINATION},
                             {"parameter", ANYATTN_REASON_PARAMETER},
                             {"option", ANYATTN_REASON_OPTION},
                             {"vendor", ANYATTN_REASON_VENDOR}};

std::string_view name_of(std::span<const Word> words, uint32_t value, std::string_view otherwise) {
  for (const Word& word : words)
    if (word.value == value) return word.name;
  return otherwise;
}

constexpr uint64_t bit(uint32_t feature) { return uint64_t{1} << feature; }
constexpr uint64_t kCp = bit(ANYATTN_FEATURE_CP_DECODE) | bit(ANYATTN_FEATURE_CP_PREFILL);

template <auto Member>
std::string number_text(const anyattn_problem& problem) {
  return fmt::format("{}", problem.*Member);
}

template <uint32_t Bit>
std::string feature_text(const anyattn_problem& problem) {
  return anyattn_problem_has(&problem, Bit) ? "true" : "false";
}

template <auto Member, const auto& Words>
std::string word_text(const anyattn_problem& problem) {
  return std::string(name_of(Words, problem.*Member, "unknown"));
}

template <auto Member>
constexpr Field integer(std::string_view name, uint64_t read_with = 0) {
  return {name, FieldType::kInteger, false, read_with, {}, number_text<Member>};
}

template <auto Member, const auto& Words>
constexpr Field word(std::string_view name, FieldType type = FieldType::kWord) {
  return {name, type, false, 0, Words, word_text<Member, Words>};
}

template <uint32_t Bit>
constexpr Field feature(std::string_view name) {
  return {name, FieldType::kBool, true, bit(Bit), {}, feature_text<Bit>};
}

using P = anyattn_problem;
const std::array kFields{
    feature<ANYATTN_FEATURE_NON_CAUSAL>("non_causal"),
    feature<ANYATTN_FEATURE_PER_REQUEST_CAUSAL>("per_request_causal"),
    feature<ANYATTN_FEATURE_WINDOW>("window"),
    feature<ANYATTN_FEATURE_SOFT_CAP>("soft_cap"),
    feature<ANYATTN_FEATURE_ALIBI>("alibi"),
    feature<ANYATTN_FEATURE_ALIBI_SQRT>("alibi_sqrt"),
    feature<ANYATTN_FEATURE_ALIBI_SYMMETRIC>("alibi_symmetric"),
    feature<ANYATTN_FEATURE_SINKS>("sinks"),
    feature<ANYATTN_FEATURE_MM_PREFIX>("mm_prefix"),
    feature<ANYATTN_FEATURE_SPARSE_TOPK>("sparse_topk"),
    feature<ANYATTN_FEATURE_CHUNKED_LOCAL>("chunked_local"),
    feature<ANYATTN_FEATURE_CP_DECODE>("cp_decode"),
    feature<ANYATTN_FEATURE_CP_PREFILL>("cp_prefill"),
    feature<ANYATTN_FEATURE_LSE>("lse"),
    feature<ANYATTN_FEATURE_BATCH_INVARIANT>("batch_invariant"),
    feature<ANYATTN_FEATURE_QUANTISED_QUERY>("quantised_query"),
    feature<ANYATTN_FEATURE_KV_SCALES>("kv_scales"),
    feature<ANYATTN_FEATURE_KV_SCALES_PER_HEAD>("kv_scales_per_head"),
    feature<ANYATTN_FEATURE_OUT_SCALE>("out_scale"),
    feature<ANYATTN_FEATURE_OUT_BLOCK_SCALES>("out_block_scales"),
    feature<ANYATTN_FEATURE_MLA>("mla"),
    feature<ANYATTN_FEATURE_KV_TRANSFER>("kv_transfer"),
    feature<ANYATTN_FEATURE_GRAPH>("graph"),
    word<&P::attention_type, kAttentionTypes>("attention_type"),
    word<&P::key_source, kKeySources>("key_source"),
    word<&P::phase, kPhases>("phase"),
    integer<&P::num_q_heads>("num_q_heads"),
    integer<&P::num_kv_heads>("num_kv_heads"),
    integer<&P::head_size>("head_size"),
    integer<&P::head_size_v>("head_size_v"),
    word<&P::q_dtype, kDtypes>("q_dtype", FieldType::kDtype),
    word<&P::out_dtype, kDtypes>("out_dtype", FieldType::kDtype),
    integer<&P::block_size>("block_size"),
    Field{"kv_cache_dtype",
          FieldType::kText,
          false,
          0,
          {},
          [](const P& problem) { return std::string(problem.kv_cache_dtype ? problem.kv_cache_dtype : ""); }},
    integer<&P::kv_lora_rank>("kv_lora_rank", bit(ANYATTN_FEATURE_MLA)),
    integer<&P::qk_nope_head_dim>("qk_nope_head_dim", bit(ANYATTN_FEATURE_MLA)),
    integer<&P::qk_rope_head_dim>("qk_rope_head_dim", bit(ANYATTN_FEATURE_MLA)),
    integer<&P::v_head_dim>("v_head_dim", bit(ANYATTN_FEATURE_MLA)),
    integer<&P::window_left>("window_left", bit(ANYATTN_FEATURE_WINDOW)),
    integer<&P::window_right>("window_right", bit(ANYATTN_FEATURE_WINDOW)),
    Field{"logits_soft_cap", FieldType::kNumber, false, bit(ANYATTN_FEATURE_SOFT_CAP), {}, number_text<&P::logits_soft_cap>},
    integer<&P::chunk_size>("chunk_size", bit(ANYATTN_FEATURE_CHUNKED_LOCAL)),
    integer<&P::top_k>("top_k", bit(ANYATTN_FEATURE_SPARSE_TOPK)),
    integer<&P::cp_world_size>("cp_world_size", kCp),
    integer<&P::cp_rank>("cp_rank", kCp),
    integer<&P::cp_interleave>("cp_interleave", kCp),
    integer<&P::out_block_size>("out_block_size", bit(ANYATTN_FEATURE_OUT_BLOCK_SCALES)),
    Field{"graph_level", FieldType::kWord, false, bit(ANYATTN_FEATURE_GRAPH), kGraphLevels,
          [](const P& problem) { return std::string(graph_level_name(problem.graph_level)); }},
};

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string join(std::span<const Word> words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : " | ") + std::string(word.name);
  return text;
}

}  // namespace

std::span<const Field> fields() { return kFields; }

const Field* find_field(std::string_view name) {
  for (const Field& field : kFields)
    if (field.name == name) return &field;
  return nullptr;
}

std::vector<std::string> rule_field_names() {
  std::vector<std::string> names{"device"};
  for (const Field& field : kFields) names.emplace_back(field.name);
  return names;
}

bool field_is_read(const Field& field, const anyattn_problem& problem) {
  if (field.is_feature || field.read_with == 0) return true;
  return problem.num_feature_words > 0 && (problem.features[0] & field.read_with) != 0;
}

bool field_matches(const Field& field, const anyattn_problem& problem, std::string_view text) {
  if (!field_is_read(field, problem)) return false;
  const std::string own = field.text(problem);
  if (field.type == FieldType::kInteger) return parse<int64_t>(own) == parse<int64_t>(text);
  if (field.type == FieldType::kNumber) return parse<double>(own) == parse<double>(text);
  return own == text;
}

std::string field_value_problem(const Field& field, std::string_view text) {
  switch (field.type) {
    case FieldType::kInteger:
      return parse<int64_t>(text) ? "" : "a whole number";
    case FieldType::kNumber:
      return parse<double>(text) ? "" : "a number";
    case FieldType::kBool:
      return text == "true" || text == "false" ? "" : "true | false";
    case FieldType::kText:
      return text.empty() ? "a name" : "";
    case FieldType::kWord:
    case FieldType::kDtype:
      break;
  }
  for (const Word& word : field.words)
    if (word.name == text) return "";
  return join(field.words);
}

std::vector<std::string> feature_names(const anyattn_problem& problem) {
  std::vector<std::string> names;
  for (uint32_t index = 0; index < problem.num_feature_words * 64; ++index) {
    if (!anyattn_problem_has(&problem, index)) continue;
    names.push_back(index < ANYATTN_FEATURE_COUNT ? std::string(kFields[index].name) : fmt::format("feature_{}", index));
  }
  return names;
}

std::string_view dtype_name(uint32_t dtype) { return name_of(kDtypes, dtype, "unknown"); }

std::optional<uint32_t> dtype_from_name(std::string_view name) {
  for (const Word& word : kDtypes)
    if (word.name == name) return word.value;
  return std::nullopt;
}

std::string_view phase_name(uint32_t phase) { return name_of(kPhases, phase, "unknown"); }

std::string_view graph_level_name(uint32_t level) {
  std::string_view name = kGraphLevels[0].name;
  for (const Word& word : kGraphLevels)
    if (level >= word.value) name = word.name;
  return name;
}

std::string_view query_lengths_name(uint32_t lengths) { return name_of(kQueryLengths, lengths, "unknown"); }
std::string_view plane_role_name(uint32_t role) { return name_of(kPlaneRoles, role, "unknown"); }

std::string_view reason_name(uint32_t id) { return id >= ANYATTN_REASON_VENDOR ? "vendor" : name_of(kReasons, id, "unknown"); }

std::string lse_bases_text(uint32_t bases) {
  if (bases == (ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2)) return "natural | base2";
  if (bases == ANYATTN_LSE_NATURAL) return "natural";
  return bases == ANYATTN_LSE_BASE2 ? "base2" : "none";
}

std::string all_fields(const anyattn_problem& problem) {
  std::string text;
  for (const Field& field : fields())
    if (field.is_feature || field_is_read(field, problem)) text += fmt::format("\n{}={}", field.name, field.text(problem));
  return text;
}

std::string describe(const anyattn_problem& problem) {
  std::string line;
  const auto add = [&line](std::string_view separator, std::string_view text) {
    if (!line.empty()) line += separator;
    line += text;
  };
  for (const Field& field : kFields) {
    const std::string value = field.text(problem);
    if (!field.is_feature && field.read_with == 0 && !value.empty()) add(", ", fmt::format("{} {}", field.name, value));
  }
  for (const std::string& name : feature_names(problem)) {
    add(", ", name);
    const Field* feature_row = find_field(name);
    if (!feature_row) continue;
    for (const Field& field : kFields)
      if (!field.is_feature && (field.read_with & feature_row->read_with))
        add(" ", fmt::format("{}={}", field.name, field.text(problem)));
  }
  return line;
}

}  // namespace anyattn::selector
