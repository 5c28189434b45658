// SPDX-License-Identifier: Apache-2.0
#include "config/environment.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "config/nearest.h"

namespace anyattn::config {
namespace {

constexpr std::string_view kPrefix = "ANYATTN_";
constexpr std::string_view kLibraryPath = "LD_LIBRARY_PATH";
constexpr std::array<const char*, 3> kVariables{kConfigVariable, kBackendVariable, kLogLevelVariable};

// A letter or two off, or one of the names with something added or missing: ANYATTN_BACKENDS, ANYATTN_CONFIG_FILE, ANYATTN_LOG.
std::string near_miss(std::string_view name) {
  if (name.size() <= kPrefix.size() || name.substr(0, kPrefix.size()) != kPrefix) return {};
  const std::string_view given = name.substr(kPrefix.size());
  for (const char* variable : kVariables) {
    const std::string_view known = std::string_view(variable).substr(kPrefix.size());
    const bool part = given.substr(0, known.size()) == known || known.substr(0, given.size()) == given;
    if (part || edit_distance(given, known) <= 2) return variable;
  }
  return {};
}

// Colons and semicolons part it. An empty element is the current folder to the linker, where anybody may have put a library.
void read_library_path(const std::string& text, EnvironmentValues& out) {
  bool has_empty = false;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find_first_of(":;", begin), text.size());
    if (end == begin) {
      has_empty = true;
    } else {
      out.library_path.push_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  if (!has_empty) return;
  out.warnings.push_back(
      fmt::format("{} has an empty element ({}): the linker looks for libraries in the current folder then; take it out",
                  kLibraryPath, text));
}

}  // namespace

Environment process_environment() {
  Environment out;
  out.raised_rights = getauxval(AT_SECURE) != 0;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (text.substr(0, equals) == kLibraryPath) out.library_path = text.substr(equals + 1);
    if (equals == std::string_view::npos || text.substr(0, kPrefix.size()) != kPrefix) continue;
    out.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

EnvironmentValues read_environment(const Environment& environment) {
  EnvironmentValues out;
  if (!environment.raised_rights) read_library_path(environment.library_path, out);
  for (const auto& [name, value] : environment.variables) {
    const bool known =
        std::any_of(kVariables.begin(), kVariables.end(), [&n = name](const char* variable) { return n == variable; });
    if (!known) {
      const std::string near = near_miss(name);
      if (!near.empty())
        out.warnings.push_back(fmt::format("the environment variable {} is not read; did you mean {}?", name, near));
      continue;
    }
    if (environment.raised_rights) {
      out.warnings.push_back(fmt::format("the environment variable {} is ignored: the process runs with raised rights", name));
      continue;
    }
    if (value.empty()) throw ConfigError(fmt::format("environment {}: is set but empty; give it a value or unset it", name));
    if (name == kConfigVariable) out.config_path = value;
    if (name == kBackendVariable) out.backend = value;
    if (name == kLogLevelVariable) out.log_level = value;
  }
  return out;
}

}  // namespace anyattn::config
