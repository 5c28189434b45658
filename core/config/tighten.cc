// SPDX-License-Identifier: Apache-2.0
#include "config/tighten.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/names.h"

namespace anyattn::config {
namespace {

std::string_view name_of(TrustLevel level) { return kTrustLevels[static_cast<size_t>(level)]; }

}  // namespace

std::string loosened(const Config& running, const Config& next) {
  const auto refuse = [&](const std::string& what) {
    return fmt::format("{}: {}; a reload only tightens: restart the process to loosen it", next.file, what);
  };
  if (next.trust_level < running.trust_level)
    return refuse(
        fmt::format("trust.level is {}, this process runs with {}", name_of(next.trust_level), name_of(running.trust_level)));
  if (running.probe_enabled && !next.probe_enabled) return refuse("probe.enabled is false, this process runs with true");
  if (running.trust_level != TrustLevel::kSigned) return {};
  for (const std::string& key : next.trust_keys)
    if (std::ranges::find(running.trust_keys, key) == running.trust_keys.end())
      return refuse(fmt::format("trust.keys names {}, which this process does not trust", key));
  return {};
}

}  // namespace anyattn::config
