// SPDX-License-Identifier: Apache-2.0
// anyattn lock: writes down what is chosen now, so that selection.lock notices another outcome.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/runtime.h"
#include "common/whole_file.h"
#include "vendor_verbs.h"

namespace anyattn::tools {

using nlohmann::ordered_json;

int lock(const LockOptions& options) {
  ordered_json selections = ordered_json::array();
  for (const std::string& model : options.models) {
    ExplainOptions asked = options.explain;
    asked.model = model;
    const ordered_json answer = explained(asked);
    for (const ordered_json& layer : answer.at("layers")) {
      if (layer.contains("unsupported")) continue;
      if (layer.at("chosen").is_null())
        throw Failure(kExitFailed, fmt::format("{}, layers {}: {}", model, text_of(layer, "kind"), text_of(layer, "error")));
      ordered_json entry = layer.at("lock");
      entry["model"] = model;
      entry["layers"] = layer.at("kind");
      entry["device"] = layer.at("device");
      selections.push_back(std::move(entry));
    }
  }
  write_whole(options.out, ordered_json{{"lock", 1}, {"selections", selections}}.dump(2) + "\n");
  fmt::print("{}: {} selection{}; name it in the configuration: selection: {{lock: {}}}\n", options.out, selections.size(),
             selections.size() == 1 ? "" : "s", options.out);
  return kExitOk;
}

}  // namespace anyattn::tools
