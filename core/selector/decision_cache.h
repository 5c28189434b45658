// SPDX-License-Identifier: Apache-2.0
// Remembers decisions by full problem, device, must and registry generation. Included by the API.
// Decides nothing itself.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "selector/selector.h"

namespace anyattn::selector {

class DecisionCache {
 public:
  // As select(); the same object again while nothing changed. Safe from any thread; failures are not kept.
  std::shared_ptr<const Decision> select(const Request& request, const config::Config& config, registry::Registry& registry);
  // Decisions kept now.
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  uint64_t generation_ = 0;  // of everything in decisions_
  std::unordered_map<std::string, std::shared_ptr<const Decision>> decisions_;
};

}  // namespace anyattn::selector
