// SPDX-License-Identifier: Apache-2.0
// The selections of a day, kept so that another day with another outcome is noticed: what is written down of a decision, and the
// comparison at start. Included by core/api. Selects nothing.
#pragma once

#include <map>
#include <string>

#include "selector/selector.h"

namespace anyattn::api {

// Of one decision: what was asked (a hash of problem and device kind), and what came out.
struct LockEntry {
  std::string problem;  // 64 hex digits
  std::string chosen;   // backend names
  std::string plugins;  // "ID CONTENT", one a choice
  std::string reasons;  // 64 hex digits over every candidate's verdict and reasons
};
LockEntry lock_entry(const selector::Decision& decision);

class SelectionLock {
 public:
  SelectionLock() = default;
  // As `anyattn lock` writes it. Throws ConfigError.
  explicit SelectionLock(const std::string& file);

  bool is_set() const { return !file_.empty(); }
  // Throws StatusError with the difference. The decision was made with ask_all.
  void require_same(const selector::Decision& decision) const;

 private:
  std::string file_;
  std::map<std::string, LockEntry> entries_;  // by problem
};

}  // namespace anyattn::api
