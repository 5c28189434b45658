// SPDX-License-Identifier: Apache-2.0
// Bundle, pins of the configuration and trust.level: whether a file may be looked at any further. Included by discovery.cc.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "discovery/bundle.h"
#include "discovery/discovery.h"

namespace anyattn::discovery {

// Why a file is no candidate.
struct Refusal {
  Stage stage;
  int32_t status;
  std::string reason;
  std::string remedy;
};

// Reads each folder's bundle and the trusted keys once.
class TrustGate {
 public:
  // All are borrowed. warnings: takes a line for each key that cannot be read.
  TrustGate(const config::Config& config, const Host& host, std::vector<std::string>& warnings)
      : config_(config), cpu_(host.cpu), warnings_(warnings) {}

  // Wants content, sidecar and entry of the candidate; fills in version, signed_by, companions and must_be_copied.
  std::optional<Refusal> check(Candidate& candidate);
  // Of this folder; nullopt: it is none.
  const std::optional<Bundle>& bundle_of(const std::string& folder);

 private:
  const config::Config& config_;
  const anyattn_cpu_facts* cpu_;
  std::vector<std::string>& warnings_;
  std::map<std::string, std::optional<Bundle>> bundle_by_folder_;
  std::vector<TrustedKey> keys_;
  bool has_keys_ = false;
};

}  // namespace anyattn::discovery
