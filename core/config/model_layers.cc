// SPDX-License-Identifier: Apache-2.0
#include "config/model_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace anyattn::config {
namespace {

constexpr uint64_t bit(uint32_t feature) { return uint64_t{1} << feature; }

class LayerBuilder {
 public:
  LayerBuilder(const ModelFacts& model, uint32_t dtype, const std::string& file) : model_(model), dtype_(dtype), file_(file) {}

  std::vector<LayerKind> build() && {
    for (const AttentionRow& row : model_.attention) add_row(row);
    return std::move(kinds_);
  }

 private:
  bool keeps_cache(const AttentionRow& row) const { return row.kind != "linear" && row.kind != "ssm"; }

  // A row of which some layers choose keys becomes two kinds of layers.
  void add_row(const AttentionRow& row) {
    const bool sparse = model_.sparse && keeps_cache(row);
    if (!sparse) return add_kind(row, row.num_layers, false);
    const uint32_t chosen = model_.sparse->num_layers ? model_.sparse->num_layers : row.num_layers;
    if (chosen > row.num_layers)
      refuse(model_.sparse->mark,
             fmt::format("sparse.layers is {}, more than the {} layers of the row", chosen, row.num_layers));
    if (chosen < row.num_layers) add_kind(row, row.num_layers - chosen, false);
    add_kind(row, chosen, true);
  }

  void add_kind(const AttentionRow& row, uint32_t num_layers, bool sparse) {
    LayerKind kind;
    kind.num_layers = num_layers;
    kind.unsupported = unsupported(row, sparse);
    kind.label = unique_label(label(row, sparse));
    if (kind.unsupported.empty()) describe(row, sparse, kind);
    kinds_.push_back(std::move(kind));
  }

  std::string unsupported(const AttentionRow& row, bool sparse) const {
    if (row.kind == "linear") return "linear attention keeps a state instead of keys and values; no backend takes such layers";
    if (row.kind == "ssm") return "state space layers keep a state instead of keys and values; no backend takes such layers";
    if (!sparse) return {};
    if (model_.sparse->kind == "blocks") return "sparse attention over chosen blocks of keys; no backend takes such layers";
    if (model_.sparse->compressed) return "sparse attention over compressed keys; no backend takes such layers";
    return {};
  }

  bool encoder_only() const { return model_.kind == "encoder" || model_.kind == "vision"; }
  bool encoder_decoder() const { return model_.kind == "encoder-decoder"; }

  std::string label(const AttentionRow& row, bool sparse) const {
    if (sparse && model_.sparse->kind == "blocks") return "sparse_blocks";
    if (sparse && model_.sparse->compressed) return "sparse_compressed";
    if (row.cross) return "cross";
    if (encoder_decoder()) return row.causal ? "decoder" : "encoder";
    if (encoder_only() && row.kind == "full") return model_.kind;
    if (sparse) return row.kind + "_topk";
    return row.kind;
  }

  std::string unique_label(const std::string& wanted) const {
    const auto taken = [&](const std::string& name) {
      return std::any_of(kinds_.begin(), kinds_.end(), [&](const LayerKind& kind) { return kind.label == name; });
    };
    std::string name = wanted;
    for (int i = 2; taken(name); ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  void describe(const AttentionRow& row, bool sparse, LayerKind& kind) const {
    check_row(row);
    anyattn_problem& problem = kind.problem;
    problem.struct_size = ANYATTN_PROBLEM_SIZE;
    problem.num_feature_words = ANYATTN_FEATURE_WORDS;
    problem.q_dtype = dtype_;
    problem.out_dtype = dtype_;
    problem.num_q_heads = row.num_q_heads;
    kind.softmax_scale = row.scale.value_or(1.0 / std::sqrt(static_cast<double>(row.head_size)));
    kind.max_keys = row.max_keys;
    if (row.kind == "mla")
      describe_mla(row, kind);
    else
      describe_heads(row, kind);
    describe_keys(row, kind);
    describe_logits(row, kind);
    if (sparse) {
      kind.features |= bit(ANYATTN_FEATURE_SPARSE_TOPK);
      problem.top_k = model_.sparse->top_k;
      if (problem.top_k == 0)
        refuse(model_.sparse->mark, "sparse.keys is missing; a topk selection says how many keys a row sees");
    }
  }

  void check_row(const AttentionRow& row) const {
    if (row.num_q_heads == 0 || row.num_kv_heads == 0 || row.head_size == 0)
      refuse(row.mark, fmt::format("a {} row needs q, kv and head", row.kind));
    if (row.num_q_heads % row.num_kv_heads != 0)
      refuse(row.mark, fmt::format("q is {}, no multiple of kv, which is {}", row.num_q_heads, row.num_kv_heads));
    const bool wants_window = row.kind == "sliding" || row.kind == "chunked";
    if (wants_window != (row.window != 0))
      refuse(row.mark, fmt::format("a {} row {} window", row.kind, wants_window ? "needs a" : "has no"));
    if ((row.soft_cap && *row.soft_cap == 0) || (row.scale && *row.scale == 0))
      refuse(row.mark, "soft_cap and scale are above 0");
  }

  void describe_heads(const AttentionRow& row, LayerKind& kind) const {
    kind.problem.num_kv_heads = row.num_kv_heads;
    kind.problem.head_size = row.head_size;
    kind.problem.head_size_v = row.head_size_v ? row.head_size_v : row.head_size;
  }

  // The absorbed form: every query head over one latent row. LSE: prefill over a cached context merges chunks.
  void describe_mla(const AttentionRow& row, LayerKind& kind) const {
    if (!model_.mla) refuse(row.mark, "an mla row needs the model's mla sizes");
    const MlaSizes& mla = *model_.mla;
    if (row.head_size != mla.qk_nope_head_dim + mla.qk_rope_head_dim)
      refuse(row.mark, fmt::format("head is {}, but mla.nope + mla.rope is {}", row.head_size,
                                   mla.qk_nope_head_dim + mla.qk_rope_head_dim));
    if (row.head_size_v && row.head_size_v != mla.v_head_dim)
      refuse(row.mark, fmt::format("v_head is {}, but mla.v is {}", row.head_size_v, mla.v_head_dim));
    anyattn_problem& problem = kind.problem;
    problem.num_kv_heads = 1;
    problem.head_size = mla.kv_lora_rank + mla.qk_rope_head_dim;
    problem.head_size_v = mla.kv_lora_rank;
    problem.kv_lora_rank = mla.kv_lora_rank;
    problem.qk_nope_head_dim = mla.qk_nope_head_dim;
    problem.qk_rope_head_dim = mla.qk_rope_head_dim;
    problem.v_head_dim = mla.v_head_dim;
    kind.features |= bit(ANYATTN_FEATURE_MLA) | bit(ANYATTN_FEATURE_LSE);
  }

  void describe_keys(const AttentionRow& row, LayerKind& kind) const {
    anyattn_problem& problem = kind.problem;
    problem.attention_type = row.cross                          ? ANYATTN_TYPE_ENCODER_DECODER
                             : encoder_only()                   ? ANYATTN_TYPE_ENCODER_ONLY
                             : encoder_decoder() && !row.causal ? ANYATTN_TYPE_ENCODER
                                                                : ANYATTN_TYPE_DECODER;
    const bool ragged = problem.attention_type != ANYATTN_TYPE_DECODER;
    problem.key_source = ragged ? ANYATTN_KEYS_RAGGED : ANYATTN_KEYS_PAGED;
    problem.kv_cache_dtype = ragged ? nullptr : "auto";
    if (!row.causal) kind.features |= bit(ANYATTN_FEATURE_NON_CAUSAL);
    if (row.kind == "sliding") {
      kind.features |= bit(ANYATTN_FEATURE_WINDOW);
      problem.window_left = static_cast<int32_t>(row.window) - 1;
      problem.window_right = row.causal ? -1 : static_cast<int32_t>(row.window) - 1;
    }
    if (row.kind == "chunked") {
      kind.features |= bit(ANYATTN_FEATURE_CHUNKED_LOCAL);
      problem.chunk_size = row.window;
    }
  }

  void describe_logits(const AttentionRow& row, LayerKind& kind) const {
    if (row.soft_cap) {
      kind.features |= bit(ANYATTN_FEATURE_SOFT_CAP);
      kind.problem.logits_soft_cap = *row.soft_cap;
    }
    if (row.sink) kind.features |= bit(ANYATTN_FEATURE_SINKS);
    if (row.cross) return;  // position biases stay within one sequence
    if (model_.position == "alibi") kind.features |= bit(row.causal ? ANYATTN_FEATURE_ALIBI : ANYATTN_FEATURE_ALIBI_SYMMETRIC);
    if (model_.position == "alibi_sqrt") kind.features |= bit(ANYATTN_FEATURE_ALIBI_SQRT);
  }

  [[noreturn]] void refuse(Mark mark, const std::string& text) const { fail(file_, mark, model_.id, text); }

  const ModelFacts& model_;
  uint32_t dtype_;
  const std::string& file_;
  std::vector<LayerKind> kinds_;
};

}  // namespace

std::vector<LayerKind> layer_kinds(const ModelFacts& model, uint32_t dtype, const std::string& file) {
  return LayerBuilder(model, dtype, file).build();
}

}  // namespace anyattn::config
