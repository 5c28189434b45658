// SPDX-License-Identifier: Apache-2.0
// The three environment variables, checked: what they say, and warnings about what they do not. Included by read.cc only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/read.h"

namespace anyattn::config {

inline constexpr const char* kConfigVariable = "ANYATTN_CONFIG";
inline constexpr const char* kBackendVariable = "ANYATTN_BACKEND";
inline constexpr const char* kLogLevelVariable = "ANYATTN_LOG_LEVEL";

struct EnvironmentValues {
  std::optional<std::string> config_path;
  std::optional<std::string> backend;
  std::optional<std::string> log_level;
  std::vector<std::string> library_path;  // folders of LD_LIBRARY_PATH; none under raised rights, as the linker has it
  std::vector<std::string> warnings;
};

// A variable that is set but empty throws ConfigError: neither "unset" nor a value is a safe guess. Under raised rights every
// variable is ignored with a warning. A name that is a near-miss of one of the three is a warning.
EnvironmentValues read_environment(const Environment& environment);

}  // namespace anyattn::config
