// SPDX-License-Identifier: Apache-2.0
// Any bytes as a configuration and as a table of models.
#include "config/config_schema.h"
#include "config/model_layers.h"
#include "config/model_table.h"
#include "security/read_yaml_text.h"

namespace anyattn::fuzzing {

void run_config(const uint8_t* data, size_t size) {
  const std::string_view text = text_of_bytes(data, size);
  expect_answer([&] {
    config::Document document = config::parse_yaml(text, kFile);
    check(document, config::config_schema());
    require(!to_line(document.root).empty(), "a configuration can be shown");
  });
  expect_answer([&] {
    const config::ModelTable table = config::parse_model_table(text, kFile);
    for (const config::ModelFacts& model : table.models)
      require(!layer_kinds(model, ANYATTN_DTYPE_FLOAT32, kFile).empty(), "a model has layers");
  });
}

}  // namespace anyattn::fuzzing
