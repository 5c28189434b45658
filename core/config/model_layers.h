// SPDX-License-Identifier: Apache-2.0
// Facts about a model -> its kinds of layers as problems. Included by the C API of models. Reads no file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "anyattn/problem.h"
#include "config/model_table.h"

namespace anyattn::config {

struct LayerKind {
  std::string label;  // unique within the model
  uint32_t num_layers = 0;
  std::string unsupported;    // empty, or why no problem describes the layer
  anyattn_problem problem{};  // features is null: the bits are below, whoever keeps the struct points it there
  uint64_t features = 0;
  double softmax_scale = 0;
  uint32_t max_keys = 0;
};

// dtype: of queries and outputs, not NONE. Throws ConfigError where the facts contradict each other.
std::vector<LayerKind> layer_kinds(const ModelFacts& model, uint32_t dtype, const std::string& file);

}  // namespace anyattn::config
