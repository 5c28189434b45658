// SPDX-License-Identifier: Apache-2.0
// What the registry shows of itself: the rows of `anyattn list` and what the selector walks over.
#include <algorithm>
#include <mutex>

#include "registry/slot.h"

namespace anyattn::registry {

uint64_t Registry::generation() const {
  const std::shared_lock lock(mutex_);
  return generation_;
}

std::vector<std::shared_ptr<const OpenPlugin>> Registry::open_plugins() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::shared_ptr<const OpenPlugin>> found;
  for (const SlotPtr& slot : now_.plugins)
    if (slot->plugin) found.push_back(slot->plugin);
  return found;
}

State Registry::plugin_state(const SlotPtr& slot) const {
  if (!slot->plugin) return State::kListed;
  const auto answers = [&](const auto& entry) { return entry.second.back() == slot; };
  const auto provides = [&](const auto& entry) { return entry.second.front() == slot; };
  if (std::ranges::any_of(now_.entries, answers) || std::ranges::any_of(now_.providers, provides)) return State::kOpen;
  return slot->in_use() ? State::kDraining : State::kRetired;
}

Snapshot Registry::snapshot() const {
  const std::shared_lock lock(mutex_);
  Snapshot snapshot;
  snapshot.generation = generation_;
  for (const auto& [key, stack] : now_.entries) {
    const SlotPtr& top = stack.back();
    Snapshot::Row row{key, top->candidate.id, top->candidate.path, top->plugin ? State::kOpen : State::kListed, "", "", {}};
    for (auto below = stack.rbegin() + 1; below != stack.rend(); ++below) {
      const Slot& slot = **below;
      const State state = !slot.plugin ? State::kListed : slot.in_use(key) ? State::kDraining : State::kRetired;
      row.beneath.push_back({slot.candidate.id, slot.candidate.path, state});
    }
    if (!row.beneath.empty()) {
      row.overrides = row.beneath.front().plugin;
      row.overridden_by = row.plugin;
    }
    snapshot.backends.push_back(std::move(row));
  }
  for (const SlotPtr& slot : now_.plugins) {
    const Candidate& c = slot->candidate;
    Snapshot::Plugin plugin{c.id,        c.vendor,      c.version,          c.license, c.path,
                            c.abi_min,   c.abi_max,     plugin_state(slot), c.origin,  c.content,
                            c.signed_by, c.device_code, c.providers};
    if (slot->plugin) {
      const OpenPlugin& open = *slot->plugin;
      plugin.vendor = open.vendor;
      plugin.version = open.version;
      plugin.license = open.license;
      plugin.abi_min = open.abi_min;
      plugin.abi_max = open.abi_max;
    }
    snapshot.plugins.push_back(std::move(plugin));
  }
  for (const Recorded& recorded : now_.failures) snapshot.skipped.push_back(recorded.failure);
  return snapshot;
}

View Registry::view() const {
  const std::shared_lock lock(mutex_);
  View view;
  view.generation = generation_;
  for (const auto& [key, stack] : now_.entries) {
    const Candidate& top = stack.back()->candidate;
    view.entries.push_back({key, top.id, top.path, top.content});
  }
  std::ranges::stable_sort(view.entries, {}, [](const View::Entry& entry) { return std::pair(entry.plugin, entry.key); });
  for (const Recorded& recorded : now_.failures) {
    for (const Key& key : recorded.names) view.failures.push_back({key, recorded.failure, holds_name(recorded, key)});
    if (recorded.names.empty()) view.other_failures.push_back(recorded.failure);
  }
  return view;
}

}  // namespace anyattn::registry
