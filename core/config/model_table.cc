// SPDX-License-Identifier: Apache-2.0
#include "config/model_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "anyattn/types.h"
#include "config/forms.h"
#include "config/nearest.h"
#include "config/schema.h"
#include "device/status_error.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

constexpr int64_t kLargest = int64_t{1} << 31;

Field optional_count(const char* name, const char* help) { return {name, integer(1, kLargest), help, "null"}; }
Field count(const char* name, const char* help) { return {name, integer(1, kLargest), help, "", true}; }

Schema attention_row() {
  return {
      .type = Type::kMapping,
      .fields = fields({count("n", "Layers of this kind."),
                        {"kind", choice({"full", "sliding", "chunked", "mla", "linear", "ssm"}), "What they see.", "", true},
                        optional_count("q", "Query heads."),
                        optional_count("kv", "Key and value heads."),
                        optional_count("head", "Size of a query or key head."),
                        optional_count("v_head", "Size of a value head; null = head."),
                        optional_count("window", "Keys seen, the own one included; of chunked layers the chunk."),
                        {"sink", {.type = Type::kBoolean}, "One learned logit a query head in the denominator.", "false"},
                        {"soft_cap", {.type = Type::kNumber, .min = 0}, "Cap of the logits.", "null"},
                        {"scale", {.type = Type::kNumber, .min = 0}, "Softmax scale; null = 1 / sqrt(head).", "null"},
                        {"causal", {.type = Type::kBoolean}, "A row sees no later key.", "true"},
                        {"cross", {.type = Type::kBoolean}, "Keys come from the encoder.", "false"},
                        optional_count("keys", "Keys a request has here, where that is not the context."),
                        optional_count("ssm_heads", "State space layers."),
                        optional_count("ssm_head", "State space layers."),
                        optional_count("ssm_state", "State space layers."),
                        optional_count("ssm_groups", "State space layers.")}),
      .example = "{n: 32, kind: full, q: 32, kv: 8, head: 128}"};
}

Schema mla_sizes() {
  return {.type = Type::kMapping,
          .fields = fields({optional_count("q_lora", "Width of compressed queries; null = not compressed."),
                            count("kv_lora", "Width of the latent row."), count("nope", "Head part without position."),
                            count("rope", "Head part with position."), count("v", "Size of a value head.")}),
          .example = "{q_lora: 1536, kv_lora: 512, nope: 128, rope: 64, v: 128}"};
}

Schema sparsity() {
  const Schema ratios{.type = Type::kMap, .element = {integer(0, kLargest)}, .example = "{4: 21}"};
  return {.type = Type::kMapping,
          .fields = fields({{"kind", choice({"topk", "blocks"}), "How keys are chosen.", "", true},
                            optional_count("keys", "Keys a row sees (topk)."),
                            optional_count("layers", "Layers that choose; null = all that keep a cache."),
                            optional_count("index_heads", "Heads of the index."),
                            optional_count("index_head", "Their size."),
                            optional_count("window", "Nearest keys that are always seen."),
                            optional_count("block", "Keys a block (blocks)."),
                            optional_count("topk_blocks", "Blocks a row sees (blocks)."),
                            optional_count("local_blocks", "Nearest blocks that are always seen (blocks)."),
                            {"compress_ratios", ratios, "Tokens a compressed key stands for: layers.", "{}"}}),
          .example = "{kind: topk, keys: 2048}"};
}

FileSchema table_schema() {
  const Schema model{
      .type = Type::kMapping,
      .fields =
          fields({{"id", text(filled_form()), "The model's name.", "", true},
                  {"kind", choice({"decoder", "encoder", "encoder-decoder", "vision", "hybrid"}), "What it is.", "", true},
                  count("layers", "Blocks of all kinds."),
                  count("hidden", "Width."),
                  optional_count("context", "Positions; null = not known."),
                  {"dtype", choice({"float32", "float16", "bfloat16"}), "Of the weights; null = not known.", "null"},
                  {"position", choice({"rope", "alibi", "alibi_sqrt", "absolute", "learned2d", "none"}), "How position enters.",
                   "", true},
                  {"attention",
                   {.type = Type::kList, .element = {attention_row()}, .filled = true, .example = "[{n: 32, kind: full, ...}]"},
                   "Kinds of attention layers.",
                   "",
                   true},
                  {"mla", mla_sizes(), "Sizes of the mla rows.", "null"},
                  {"sparse", sparsity(), "A selection of keys on top.", "null"}})};
  return {.what = "a table of models",
          .version = {},
          .root = {.type = Type::kMapping,
                   .fields = fields({{"models",
                                      {.type = Type::kList, .element = {model}, .example = "[{id: ..., kind: decoder, ...}]"},
                                      "The models.",
                                      "",
                                      true}}),
                   .example = "{models: [...]}"}};
}

uint32_t count_at(const YamlNode& node, std::string_view key) {
  const YamlNode& value = at(node, key);
  return is_null(value) ? 0 : static_cast<uint32_t>(integer_of(value));
}

std::optional<double> number_at(const YamlNode& node, std::string_view key) {
  const YamlNode& value = at(node, key);
  return is_null(value) ? std::nullopt : std::optional<double>(number_of(value));
}

AttentionRow bind_row(const YamlNode& node) {
  return {.mark = node.mark,
          .kind = text_of(at(node, "kind")),
          .num_layers = count_at(node, "n"),
          .num_q_heads = count_at(node, "q"),
          .num_kv_heads = count_at(node, "kv"),
          .head_size = count_at(node, "head"),
          .head_size_v = count_at(node, "v_head"),
          .window = count_at(node, "window"),
          .max_keys = count_at(node, "keys"),
          .sink = boolean_of(at(node, "sink")),
          .causal = boolean_of(at(node, "causal")),
          .cross = boolean_of(at(node, "cross")),
          .soft_cap = number_at(node, "soft_cap"),
          .scale = number_at(node, "scale")};
}

uint32_t dtype_at(const YamlNode& node) {
  const YamlNode& value = at(node, "dtype");
  if (is_null(value)) return ANYATTN_DTYPE_NONE;
  const std::string& name = text_of(value);
  return name == "float32" ? ANYATTN_DTYPE_FLOAT32 : name == "float16" ? ANYATTN_DTYPE_FLOAT16 : ANYATTN_DTYPE_BFLOAT16;
}

ModelFacts bind_model(const YamlNode& node) {
  ModelFacts out;
  out.id = text_of(at(node, "id"));
  out.kind = text_of(at(node, "kind"));
  out.position = text_of(at(node, "position"));
  out.num_layers = count_at(node, "layers");
  out.hidden_size = count_at(node, "hidden");
  out.max_context = count_at(node, "context");
  out.dtype = dtype_at(node);
  for (const YamlNode& row : at(node, "attention").items) out.attention.push_back(bind_row(row));
  if (const YamlNode& mla = at(node, "mla"); !is_null(mla))
    out.mla = MlaSizes{mla.mark, count_at(mla, "kv_lora"), count_at(mla, "nope"), count_at(mla, "rope"), count_at(mla, "v")};
  if (const YamlNode& sparse = at(node, "sparse"); !is_null(sparse))
    out.sparse = Sparsity{sparse.mark, text_of(at(sparse, "kind")), count_at(sparse, "layers"), count_at(sparse, "keys"),
                          !at(sparse, "compress_ratios").items.empty()};
  return out;
}

ModelTable bind(Document document) {
  check(document, table_schema());
  ModelTable table{document.file, {}};
  std::set<std::string> seen;
  const YamlNode& models = at(document.root, "models");
  for (size_t i = 0; i < models.items.size(); ++i) {
    table.models.push_back(bind_model(models.items[i]));
    if (!seen.insert(normalised(table.models.back().id)).second)
      fail(document.file, models.items[i].mark, join_path("models", i) + ".id",
           fmt::format("the model {} is listed twice; keep one", table.models.back().id));
  }
  return table;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// "8B" is no end of "Llama-3.1-8B": only whole words after the organisation count.
bool ends_in(const std::string& id, const std::string& end) {
  if (end.empty() || id.size() <= end.size() || id.compare(id.size() - end.size(), end.size(), end) != 0) return false;
  const char before = id[id.size() - end.size() - 1];
  return before == '/' || before == ' ';
}

// Up to five ids, the most alike first: those that hold the text, then by letters to change.
std::vector<std::string> nearest_ids(const ModelTable& table, const std::string& wanted) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const ModelFacts& model : table.models) {
    const std::string id = lower(model.id);
    const size_t slash = id.rfind('/');
    const std::string name = slash == std::string::npos ? id : id.substr(slash + 1);
    const bool part = !wanted.empty() && id.find(wanted) != std::string::npos;
    ranked.emplace_back(part ? 0 : std::min(edit_distance(wanted, id), edit_distance(wanted, name)), model.id);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < ranked.size() && i < 5; ++i) out.push_back(ranked[i].second);
  return out;
}

}  // namespace

ModelTable read_model_table(const std::string& path) { return bind(read_yaml(path)); }

ModelTable parse_model_table(std::string_view text, const std::string& path) { return bind(parse_yaml(text, path)); }

const ModelFacts& find_model(const ModelTable& table, const std::string& id) {
  for (const ModelFacts& model : table.models)
    if (model.id == id) return model;
  const std::string wanted = lower(id);
  std::vector<const ModelFacts*> ends;
  for (const ModelFacts& model : table.models) {
    if (lower(model.id) == wanted) return model;
    if (ends_in(lower(model.id), wanted)) ends.push_back(&model);
  }
  if (ends.size() == 1) return *ends[0];
  std::vector<std::string> names;
  names.reserve(ends.size());
  for (const ModelFacts* model : ends) names.push_back(model->id);
  if (!ends.empty())
    throw StatusError(ANYATTN_NOT_FOUND,
                      fmt::format("{}: the model {} may be {}; write the whole id", table.file, quote(id), comma_list(names)));
  throw StatusError(ANYATTN_NOT_FOUND, fmt::format("{}: there is no model {}; nearest of {}: {}", table.file, quote(id),
                                                   table.models.size(), comma_list(nearest_ids(table, wanted))));
}

}  // namespace anyattn::config
