// SPDX-License-Identifier: Apache-2.0
// One plugin inside the registry. Included by the registry's own files only.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "registry/registry.h"

namespace anyattn::registry {

struct Registry::Slot {
  explicit Slot(Candidate given) : candidate(std::move(given)) {}

  std::mutex opening;   // one opener at a time; taken before the registry's mutex
  Candidate candidate;  // below: guarded by the registry's mutex
  std::shared_ptr<const OpenPlugin> plugin;
  std::optional<Failure> failure;
  std::map<Key, std::shared_ptr<int>> uses;  // a handle holds a copy: more than one owner means in use

  bool in_use(const Key& key) const {
    const auto found = uses.find(key);
    return found != uses.end() && found->second.use_count() > 1;
  }
  bool in_use() const {
    for (const auto& [key, use] : uses)
      if (use.use_count() > 1) return true;
    return false;
  }
};

}  // namespace anyattn::registry
