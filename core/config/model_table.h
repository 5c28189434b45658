// SPDX-License-Identifier: Apache-2.0
// The table of models (models.yaml): facts about attention layers as the file gives them, and the search for an id.
// Included by model_layers.cc and the C API of models. Makes no problem of them: see model_layers.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/yaml_tree.h"

namespace anyattn::config {

// One row of `attention`: a kind of layer. 0 or nullopt where the file gives nothing.
struct AttentionRow {
  Mark mark;
  std::string kind;  // full, sliding, chunked, mla, linear, ssm
  uint32_t num_layers = 0;
  uint32_t num_q_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_size = 0;
  uint32_t head_size_v = 0;  // 0: head_size
  uint32_t window = 0;       // keys seen, the own one included; of chunked layers the chunk
  uint32_t max_keys = 0;
  bool sink = false;
  bool causal = true;
  bool cross = false;
  std::optional<double> soft_cap;
  std::optional<double> scale;
};

struct MlaSizes {
  Mark mark;
  uint32_t kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
};

// A selection of keys on top of some layers.
struct Sparsity {
  Mark mark;
  std::string kind;         // topk, blocks
  uint32_t num_layers = 0;  // 0: all layers that keep a cache
  uint32_t top_k = 0;
  bool compressed = false;  // the keys chosen from are compressed ones
};

struct ModelFacts {
  std::string id;
  std::string kind;  // decoder, encoder, encoder-decoder, vision, hybrid
  std::string position;
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t max_context = 0;  // 0: the file gives none
  uint32_t dtype = 0;        // ANYATTN_DTYPE_*; NONE: the file gives none
  std::vector<AttentionRow> attention;
  std::optional<MlaSizes> mla;
  std::optional<Sparsity> sparse;
};

struct ModelTable {
  std::string file;
  std::vector<ModelFacts> models;  // ids differ, whatever their case
};

// Throws ConfigError.
ModelTable read_model_table(const std::string& path);
ModelTable parse_model_table(std::string_view text, const std::string& path);

// The model whose id is `id`, else is it but for case, else alone ends in it after a '/' or blank. Throws StatusError NOT_FOUND with the
// ids that end so, or the nearest ones.
const ModelFacts& find_model(const ModelTable& table, const std::string& id);

}  // namespace anyattn::config
