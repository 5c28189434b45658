// SPDX-License-Identifier: Apache-2.0
// A selection lock as `anyattn lock` writes it: what was chosen on a day, problem by problem. Included by core/api. Compares
// nothing with what is chosen now (api/selection_lock.h does).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/config.h"

namespace anyattn::config {

// Of one decision: what was asked (a hash of problem and device kind), and what came out.
struct LockEntry {
  std::string problem;  // 64 hex digits
  std::string chosen;   // backend names, ", " between two
  std::string plugins;  // "ID CONTENT", as many
  std::string reasons;  // 64 hex digits over every candidate's verdict and reasons
  bool operator==(const LockEntry&) const = default;
};

struct Lock {
  std::string file;
  std::map<std::string, LockEntry> entries;  // by problem
};

// Throw ConfigError with file, line, column and key; a file that cannot be read is an error too.
Lock read_lock(const std::string& path);
Lock parse_lock(std::string_view text, const std::string& path);

}  // namespace anyattn::config
