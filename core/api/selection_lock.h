// SPDX-License-Identifier: Apache-2.0
// The selections of a day, kept so that another day with another outcome is noticed: what is written down of a decision, and the
// comparison at start. Included by core/api. Selects nothing.
#pragma once

#include <optional>
#include <string>

#include "config/lock.h"
#include "selector/selector.h"

namespace anyattn::api {

config::LockEntry lock_entry(const selector::Decision& decision);

class SelectionLock {
 public:
  SelectionLock() = default;
  // As `anyattn lock` writes it. Throws ConfigError.
  explicit SelectionLock(const std::string& file) : lock_(config::read_lock(file)) {}

  bool is_set() const { return lock_.has_value(); }
  // Throws StatusError with the difference. The decision was made with ask_all.
  void require_same(const selector::Decision& decision) const;

 private:
  std::optional<config::Lock> lock_;
};

}  // namespace anyattn::api
