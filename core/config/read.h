// SPDX-License-Identifier: Apache-2.0
// Reads the configuration: flag > environment > file > default, each value with its origin.
// Included by whoever makes a runtime. Looks at no plugin and no device; names of backends are checked by the selector.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace anyattn::config {

// The environment as one snapshot, so that tests can bring their own and nothing reads it twice.
struct Environment {
  std::map<std::string, std::string> variables;  // those whose name begins with ANYATTN_
  std::string library_path;                      // LD_LIBRARY_PATH as it stands
  bool raised_rights = false;                    // AT_SECURE: the variables are then ignored with a warning
};
Environment process_environment();

struct LoadOptions {
  // Flags; nullopt = not given. An empty text is an error, not "not given".
  std::optional<std::string> config_path;  // relative to the current folder
  std::optional<std::string> backend;
  std::optional<std::string> log_level;
  // Read when neither flag nor ANYATTN_CONFIG names a file: the default.yaml that came with the library, an absolute path.
  std::string default_config_path;
  // nullopt = process_environment().
  std::optional<Environment> environment;
  // Names allowed in selection.rules[].when (problem fields, feature names, device); empty = not checked here.
  std::vector<std::string> rule_fields;
};

// Throws ConfigError. Config::warnings holds what is no mistake but should be said once: near-miss or ignored variables.
Config load(const LoadOptions& options);

}  // namespace anyattn::config
