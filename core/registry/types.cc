// SPDX-License-Identifier: Apache-2.0
#include "registry/types.h"

#include <fmt/format.h>

#include <array>

#include "config/names.h"

namespace anyattn::registry {

std::string describe(const Key& key) { return fmt::format("{} on {}", key.name, config::device_kind_name(key.device_kind)); }

std::string_view state_name(State state) {
  constexpr std::array<std::string_view, 4> kNames{"listed", "open", "draining", "retired"};
  return kNames[static_cast<size_t>(state)];
}

std::string describe(const Failure& failure) {
  std::string who = failure.plugin;
  if (!failure.path.empty()) who += who.empty() ? failure.path : " (" + failure.path + ")";
  std::string text = fmt::format("plugin {} failed at {}: {}", who, stage_name(failure.stage), failure.reason);
  if (!failure.remedy.empty()) text += "; " + failure.remedy;
  return text;
}

}  // namespace anyattn::registry
