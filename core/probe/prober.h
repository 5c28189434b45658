// SPDX-License-Identifier: Apache-2.0
// The verdict on a plugin file: from the cache where everything that matters is as it was, else from a child process.
// Included by the loader and the API. Opens no plugin itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "probe/cache.h"
#include "probe/verdict.h"

namespace anyattn::probe {

struct ProberOptions {
  std::string helper;        // the helper program, absolute
  std::string cache_folder;  // empty: verdicts live as long as the prober
  uint32_t timeout_ms = 10000;
};

struct Subject {
  std::string id;       // as far as it is known before; for lists
  std::string path;     // absolute, canonical, inspected
  std::string content;  // hash of what inspection saw
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<std::string> libraries;  // canonical paths it would be bound to, "NAME" where one is found nowhere
};

// Thread-safe; two threads that ask about one file at once share one child.
class Prober {
 public:
  // A verdict that may pass by itself (a hang, no memory) counts for this long.
  static constexpr int64_t kTransientSeconds = 600;

  explicit Prober(ProberOptions options);

  Verdict verdict(const Subject& subject);
  const VerdictCache& cache() const { return cache_; }
  // As if never asked. Empty `which`: all; else an id or a path. How many were forgotten.
  uint64_t forget(const std::string& which);

 private:
  std::string key_of(const Subject& subject) const;

  const ProberOptions options_;
  const VerdictCache cache_;
  std::mutex mutex_;
  std::map<std::string, Verdict> known_;                       // of this process, by key
  std::map<std::string, std::shared_ptr<std::mutex>> asking_;  // by key
};

bool has_expired(const Verdict& verdict);

}  // namespace anyattn::probe
