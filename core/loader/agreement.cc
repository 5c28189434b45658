// SPDX-License-Identifier: Apache-2.0
#include "loader/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "config/names.h"
#include "config/nearest.h"
#include "loader/failure.h"

namespace anyattn::loader {
namespace {

[[noreturn]] void disagree(const config::Sidecar& sidecar, const std::string& what, const std::string& said,
                           const std::string& found) {
  throw Refusal{
      discovery::Stage::kRegister, ANYATTN_INVALID_ARGUMENT,
      fmt::format("plugin and sidecar {} disagree on {}: the sidecar says {}, the plugin {}", sidecar.path, what, said, found),
      "rebuild both with anyattn_add_plugin, or remove the sidecar"};
}

std::string backend_text(const std::string& name, uint32_t kind) {
  return fmt::format("{}:{}", name, config::device_kind_name(kind));
}

std::string list(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string option_remedy(const std::string& key, const std::vector<OptionInfo>& options) {
  if (options.empty()) return "remove the option: the plugin reads none";
  std::vector<std::string> keys;
  keys.reserve(options.size());
  for (const OptionInfo& option : options) keys.push_back(option.key);
  const std::string nearest = config::nearest(key, keys);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest);
  return fmt::format("{}the plugin reads: {}", hint, fmt::join(keys, ", "));
}

}  // namespace

void check_sidecar(const Tables& tables, const config::Sidecar& sidecar) {
  using discovery::abi_text;
  if (sidecar.id != tables.id) disagree(sidecar, "the id", sidecar.id, tables.id);
  if (sidecar.abi_min != tables.abi_min || sidecar.abi_max != tables.abi_max) {
    disagree(sidecar, "the ABI range", fmt::format("{} to {}", abi_text(sidecar.abi_min), abi_text(sidecar.abi_max)),
             fmt::format("{} to {}", abi_text(tables.abi_min), abi_text(tables.abi_max)));
  }
  std::set<std::string> said;
  std::set<std::string> found;
  for (const config::Sidecar::Backend& backend : sidecar.backends) said.insert(backend_text(backend.name, backend.device_kind));
  for (const Backend& backend : tables.backends) found.insert(backend_text(backend.name, backend.device_kind));
  if (said != found) disagree(sidecar, "the backends", list(said), list(found));
  said.clear();
  found.clear();
  for (const uint32_t kind : sidecar.providers) said.emplace(config::device_kind_name(kind));
  for (const Provider& provider : tables.providers) found.insert(provider.name);
  if (said != found) disagree(sidecar, "the device providers", list(said), list(found));
}

void check_entry(const Tables& tables, const config::PluginEntry& entry) {
  if (!entry.id.empty() && entry.id != tables.id) {
    throw Refusal{discovery::Stage::kRegister, ANYATTN_INVALID_ARGUMENT,
                  fmt::format("{} names it {}, the plugin says {}", entry.origin.text, entry.id, tables.id),
                  "correct id or file of the entry"};
  }
  for (const config::Option& option : entry.options) {
    if (std::ranges::any_of(tables.options, [&](const OptionInfo& known) { return known.key == option.key; })) continue;
    throw Refusal{discovery::Stage::kRegister, ANYATTN_INVALID_ARGUMENT,
                  fmt::format("{} sets the option {}, which the plugin does not read", option.origin.text, option.key),
                  option_remedy(option.key, tables.options)};
  }
}

}  // namespace anyattn::loader
