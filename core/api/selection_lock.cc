// SPDX-License-Identifier: Apache-2.0
#include "api/selection_lock.h"

#include <fmt/format.h>

#include "device/devices.h"
#include "device/status_error.h"
#include "discovery/content.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

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

config::LockEntry lock_entry(const selector::Decision& decision) {
  config::LockEntry entry;
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

void SelectionLock::require_same(const selector::Decision& decision) const {
  const config::LockEntry now = lock_entry(decision);
  const auto refuse = [&](const std::string& difference) {
    throw StatusError(
        ANYATTN_INVALID_ARGUMENT,
        fmt::format("selection.lock {}: {}; see 'anyattn explain', then write the lock again or undo what changed", lock_->file,
                    difference));
  };
  const auto locked = lock_->entries.find(now.problem);
  if (locked == lock_->entries.end())
    refuse(fmt::format("it has no selection for this problem, which now gets {}", now.chosen));
  const config::LockEntry& then = locked->second;
  if (then.chosen != now.chosen) refuse(fmt::format("it says {}, now {} is chosen", then.chosen, now.chosen));
  if (then.plugins != now.plugins)
    refuse(fmt::format("{} came from {}, now it comes from {}", then.chosen, then.plugins, now.plugins));
  if (then.reasons != now.reasons)
    refuse(fmt::format("{} is chosen as before, but other candidates are there or give other reasons", then.chosen));
}

}  // namespace anyattn::api
