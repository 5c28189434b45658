// SPDX-License-Identifier: Apache-2.0
#include "selector/quarantine.h"

namespace anyattn::selector {

void Quarantine::add(const registry::Key& key, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reasons_.emplace(key, reason).second) version_.fetch_add(1, std::memory_order_release);
}

std::string Quarantine::reason(const registry::Key& key) const {
  if (version() == 0) return {};
  const std::lock_guard lock(mutex_);
  const auto found = reasons_.find(key);
  return found == reasons_.end() ? std::string() : found->second;
}

}  // namespace anyattn::selector
