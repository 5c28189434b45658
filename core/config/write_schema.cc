// SPDX-License-Identifier: Apache-2.0
// Prints config/schema.json. Run it after a change of the schema: build the target config_schema.
#include <cstdio>

#include "config/config_schema.h"
#include "config/json_schema.h"

int main() {
  const std::string text = anyattn::config::json_schema(anyattn::config::config_schema(), "AnyAttn configuration");
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
