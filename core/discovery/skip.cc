// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "discovery/discovery.h"

namespace anyattn::discovery {

const char* stage_name(Stage stage) {
  switch (stage) {
    case Stage::kDiscover:
      return "discover";
    case Stage::kTrust:
      return "trust";
    case Stage::kInspect:
      return "inspect";
    case Stage::kProbe:
      return "probe";
    case Stage::kOpen:
      return "open";
    case Stage::kNegotiate:
      return "negotiate";
    case Stage::kRegister:
      return "register";
    case Stage::kSupports:
      return "supports";
  }
  return "unknown";
}

Stage stage_from_name(std::string_view name, Stage fallback) {
  for (int i = 0; i <= static_cast<int>(Stage::kSupports); ++i)
    if (name == stage_name(static_cast<Stage>(i))) return static_cast<Stage>(i);
  return fallback;
}

std::string text(const Skip& skip) {
  const std::string who = skip.plugin.empty() ? fmt::format("plugin {}", skip.path)
                          : skip.path.empty() ? fmt::format("plugin {}", skip.plugin)
                                              : fmt::format("plugin {} ({})", skip.plugin, skip.path);
  return fmt::format("{} failed at {}: {}; {}", who, stage_name(skip.stage), skip.reason, skip.remedy);
}

std::string abi_text(uint32_t version) { return fmt::format("{}.{}", version >> 16, version & 0xffffu); }

}  // namespace anyattn::discovery
