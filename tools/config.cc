// SPDX-License-Identifier: Apache-2.0
// anyattn config: every value of the configuration and where it came from.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "verbs.h"

namespace anyattn::tools {

int config(const CommonOptions& options) {
  const JsonOutput output(options.json);
  const Runtime runtime = open_runtime(as_engines(options), "");
  const nlohmann::ordered_json values = parse(runtime.config());
  if (output.table()) {
    Table table({{"key"}, {"value"}, {"origin"}});
    for (const auto& value : values.at("values")) {
      const std::string origin = text_of(value, "origin");
      const bool chosen = origin != "default";
      table.add({text_of(value, "key"),
                 {text_of(value, "value"), chosen ? Colour::kBold : Colour::kPlain},
                 {origin, chosen ? Colour::kCyan : Colour::kDim}});
    }
    fmt::print("{}", table.render(terminal_of(1)));
  }
  output.write(values);
  return kExitOk;
}

}  // namespace anyattn::tools
