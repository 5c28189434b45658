// SPDX-License-Identifier: Apache-2.0
// Opens a candidate, negotiates with it and hands out a Plugin; every failure is a Skip that names stage, reason and remedy.
// Included by the registry. Finds nothing and registers nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "discovery/discovery.h"
#include "loader/host_services.h"
#include "loader/plugin.h"

namespace anyattn::probe {
class Prober;
}

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
  // Hears open, negotiate, register as each begins: for who watches from another process.
  using StageFn = std::function<void(discovery::Stage)>;
  explicit Loader(const HostServices& services, AbiRange range = {}, StageFn on_stage = {});

  // From here on nothing is opened before its verdict is good. Borrowed; set before the first open.
  void probe_with(probe::Prober* prober) { prober_ = prober; }

  // Where copies lie that are opened instead of the files themselves: absolute, of this user alone. Empty: no copies.
  // max_contents: files of one plugin id that this process opens one after another.
  void copy_into(std::string store, uint32_t max_contents) {
    store_ = std::move(store);
    max_contents_ = max_contents;
  }

  // Opens the file, or returns the Plugin this loader already has of the same content. On failure nothing of the file is
  // kept by this loader, and the next call tries again. Throws std::bad_alloc alone, with nothing kept either.
  Opened open(const discovery::Candidate& candidate);

 private:
  std::shared_ptr<Plugin> open_new(const discovery::Candidate& candidate);
  void check_count(const discovery::Candidate& candidate) const;      // throws Refusal
  std::string place_of(const discovery::Candidate& candidate) const;  // the file itself, or its private copy

  HostServices services_;
  AbiRange range_;
  StageFn on_stage_;
  probe::Prober* prober_ = nullptr;
  std::string store_;
  uint32_t max_contents_ = 8;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Plugin>> by_content_;
  std::map<std::string, std::string> path_by_id_;
};

}  // namespace anyattn::loader
