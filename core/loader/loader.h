// SPDX-License-Identifier: Apache-2.0
// Opens a candidate, negotiates with it and hands out a Plugin; every failure is a Skip that names stage, reason and remedy.
// Included by the registry. Finds nothing and registers nothing.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "discovery/discovery.h"
#include "loader/host_services.h"
#include "loader/plugin.h"

namespace anyattn::loader {

// ABI versions a host accepts; tests play older and newer hosts with it.
struct AbiRange {
  uint32_t min = ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR_LOWEST);
  uint32_t max = ANYATTN_ABI_VERSION_CURRENT;
};

// Exactly one of the two is set.
struct Opened {
  std::shared_ptr<Plugin> plugin;
  std::optional<discovery::Skip> failure;
};

// One a runtime. Thread-safe.
class Loader {
 public:
  explicit Loader(const HostServices& services, AbiRange range = {});

  // Opens the file, or returns the Plugin this loader already has of the same content. On failure nothing of the file is
  // kept by this loader, and the next call tries again.
  Opened open(const discovery::Candidate& candidate);

 private:
  std::shared_ptr<Plugin> open_new(const discovery::Candidate& candidate);

  HostServices services_;
  AbiRange range_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Plugin>> by_content_;
  std::map<std::string, std::string> path_by_id_;
};

}  // namespace anyattn::loader
