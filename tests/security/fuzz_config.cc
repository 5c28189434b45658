// SPDX-License-Identifier: Apache-2.0
// Any bytes as a configuration, a sidecar, a manifest and a table of models: an error with a text, or a value, never a crash.
// Entry of libFuzzer; replay_config.cc runs it over a corpus in ctest.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/config_schema.h"
#include "config/manifest.h"
#include "config/model_layers.h"
#include "config/model_table.h"
#include "config/sidecar.h"

namespace {

using namespace anyattn::config;

// Runs read() and wants what it throws to be an error that names the file.
template <class Read>
void expect_answer(Read&& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    if (std::string_view(error.what()).substr(0, 6) != "f.yaml") __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_answer([&] {
    Document document = parse_yaml(text, "f.yaml");
    check(document, config_schema());
    if (to_line(document.root).empty()) __builtin_trap();
  });
  expect_answer([&] { parse_sidecar(text, "f.yaml"); });
  expect_answer([&] {
    const Manifest manifest = parse_manifest(text, "f.yaml");
    for (const Manifest::File& file : manifest.files)
      if (!is_bundle_path(file.path) || file.path.find("..") == 0) __builtin_trap();
  });
  expect_answer([&] {
    const ModelTable table = parse_model_table(text, "f.yaml");
    for (const ModelFacts& model : table.models)
      if (layer_kinds(model, ANYATTN_DTYPE_FLOAT32, "f.yaml").empty()) __builtin_trap();
  });
  return 0;
}
