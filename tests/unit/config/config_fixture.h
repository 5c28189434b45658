// SPDX-License-Identifier: Apache-2.0
// Helpers of the configuration tests: a configuration from a text, and the text of a refusal.
#pragma once

#include <string>

#include "config/read.h"
#include "temp_dir.h"

namespace anyattn::test {

using testing::TempDir;

// Options that see no flag and no variable of the process.
inline config::LoadOptions options_for(const std::string& file) {
  config::LoadOptions options;
  options.default_config_path = file;
  options.environment = config::Environment{};
  return options;
}

inline config::Config load_text(const TempDir& folder, const std::string& text) {
  return config::load(options_for(folder.write("config.yaml", text)));
}

// What a refused call says; "" where it is not refused.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const config::ConfigError& error) {
    return error.what();
  }
  return {};
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace anyattn::test
