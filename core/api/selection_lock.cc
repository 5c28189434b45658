// SPDX-License-Identifier: Apache-2.0
#include "api/selection_lock.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "config/config.h"
#include "device/devices.h"
#include "device/status_error.h"
#include "discovery/content.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

using Json = nlohmann::ordered_json;

std::string asked(const selector::Decision& decision) {
  return std::string(device::kind_name(decision.device_kind)) + selector::all_fields(decision.problem.view());
}

std::string reasons(const selector::Decision& decision) {
  std::string text;
  for (const selector::Candidate& candidate : decision.candidates) {
    text += fmt::format("{} {} {}\n", candidate.backend, candidate.plugin, selector::verdict_name(candidate.verdict));
    for (const selector::Reason& reason : candidate.reasons)
      text += fmt::format("  {} {} {} {}\n", reason.id, reason.field, reason.wanted, reason.allowed);
  }
  return text;
}

}  // namespace

LockEntry lock_entry(const selector::Decision& decision) {
  LockEntry entry;
  entry.problem = discovery::hash_text(asked(decision));
  for (const selector::Choice& choice : decision.choices) {
    const char* comma = entry.chosen.empty() ? "" : ", ";
    entry.chosen += comma + choice.backend.key.name;
    const registry::OpenPlugin* plugin = choice.backend.plugin.get();
    entry.plugins += comma + (plugin ? fmt::format("{} {}", plugin->id, plugin->content) : std::string("none"));
  }
  entry.reasons = discovery::hash_text(reasons(decision));
  return entry;
}

SelectionLock::SelectionLock(const std::string& file) : file_(file) {
  std::ifstream stream(file);
  if (!stream) throw config::ConfigError(fmt::format("selection.lock: {} cannot be read; write it with 'anyattn lock'", file));
  const Json json = Json::parse(stream, nullptr, false);
  try {
    if (json.at("lock").get<int>() != 1) throw Json::other_error::create(501, "its version is not 1", nullptr);
    for (const Json& one : json.at("selections")) {
      LockEntry entry{one.at("problem").get<std::string>(), one.at("chosen").get<std::string>(),
                      one.at("plugins").get<std::string>(), one.at("reasons").get<std::string>()};
      entries_.insert_or_assign(entry.problem, std::move(entry));
    }
  } catch (const Json::exception& mistake) {
    throw config::ConfigError(
        fmt::format("selection.lock: {} is no lock ({}); write it with 'anyattn lock'", file, mistake.what()));
  }
}

void SelectionLock::require_same(const selector::Decision& decision) const {
  const LockEntry now = lock_entry(decision);
  const auto refuse = [&](const std::string& difference) {
    throw StatusError(
        ANYATTN_INVALID_ARGUMENT,
        fmt::format("selection.lock {}: {}; see 'anyattn explain', then write the lock again or undo what changed", file_,
                    difference));
  };
  const auto locked = entries_.find(now.problem);
  if (locked == entries_.end()) refuse(fmt::format("it has no selection for this problem, which now gets {}", now.chosen));
  const LockEntry& then = locked->second;
  if (then.chosen != now.chosen) refuse(fmt::format("it says {}, now {} is chosen", then.chosen, now.chosen));
  if (then.plugins != now.plugins)
    refuse(fmt::format("{} came from {}, now it comes from {}", then.chosen, then.plugins, now.plugins));
  if (then.reasons != now.reasons)
    refuse(fmt::format("{} is chosen as before, but other candidates are there or give other reasons", then.chosen));
}

}  // namespace anyattn::api
