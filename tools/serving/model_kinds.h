// SPDX-License-Identifier: Apache-2.0
// The layer kinds of a model as `run` replays them. Included by run and the layers. Knows no device and no backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "anyattn/models.h"

namespace anyattn::tools {

// One kind of layers: a problem that owns what it points to.
struct KindSpec {
  std::string label;
  uint32_t num_layers = 0;
  uint32_t index = 0;  // among the model's kinds
  double softmax_scale = 1;
  uint64_t features = 0;
  std::string kv_cache_dtype;
  anyattn_problem problem{};

  KindSpec() = default;
  KindSpec(const KindSpec&) = delete;
  KindSpec& operator=(const KindSpec&) = delete;

  bool has(uint32_t feature) const { return anyattn_problem_has(&problem, feature) != 0; }
  // Keys to the left that a row can see besides its own; -1 = all of them.
  int32_t keys_to_the_left() const;
  // Keys a row at `position` sees.
  uint64_t visible_keys(uint32_t position) const;
};

struct ModelKinds {
  std::string id;
  uint32_t max_context = 0;  // 0 = the table does not say
  uint32_t dtype = 0;
  std::vector<std::unique_ptr<KindSpec>> kinds;
};

struct ModelRequest {
  std::string id;
  std::string models_file;  // empty: the installed table
  uint32_t dtype = 0;       // of queries and outputs; ANYATTN_DTYPE_NONE: the table's
  std::string kv_cache_dtype;
  uint32_t block_size = 0;
  uint32_t layers = 0;  // of each kind; 0 = the model's
};

// Throws Failure(kExitUsage) for an unknown model, or a kind of layer that `run` cannot feed, with its name.
ModelKinds load_model_kinds(const ModelRequest& request);

}  // namespace anyattn::tools
