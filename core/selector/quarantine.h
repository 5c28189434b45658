// SPDX-License-Identifier: Apache-2.0
// Backends that automatic choices pass over because they failed too often in this process. Included by the selector and the API.
// Counts nothing and moves nobody: a group does (core/api/quarantine.cc).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "registry/types.h"

namespace anyattn::selector {

// Safe from any thread. Lives as long as one reading of the configuration: a reload begins without it.
class Quarantine {
 public:
  // The first reason stays.
  void add(const registry::Key& key, const std::string& reason);
  // Empty: the backend is not in it.
  std::string reason(const registry::Key& key) const;
  // Another number after each add.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::map<registry::Key, std::string> reasons_;
  std::atomic<uint64_t> version_{0};
};

}  // namespace anyattn::selector
