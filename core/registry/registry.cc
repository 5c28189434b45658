// SPDX-License-Identifier: Apache-2.0
#include "registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "config/names.h"
#include "device/status_error.h"
#include "log/log.h"
#include "registry/slot.h"

namespace anyattn::registry {
namespace {

std::vector<Key> keys_of(const OpenPlugin& plugin) {
  std::vector<Key> keys;
  keys.reserve(plugin.backends.size());
  for (const anyattn_backend& backend : plugin.backends) keys.push_back({backend.name, backend.device_kind});
  return keys;
}

std::vector<uint32_t> kinds_of(const OpenPlugin& plugin) {
  std::vector<uint32_t> kinds;
  kinds.reserve(plugin.providers.size());
  for (const anyattn_device_provider& provider : plugin.providers) kinds.push_back(provider.device_kind);
  return kinds;
}

std::string list(std::vector<Key> keys) {
  std::string text;
  std::sort(keys.begin(), keys.end());
  for (const Key& key : keys) text += (text.empty() ? "" : ", ") + describe(key);
  return text.empty() ? "nothing" : text;
}

bool same_set(std::vector<Key> one, std::vector<Key> other) {
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  return one == other;
}

// The plugin must be what its sidecar and plugins.entries say it is.
std::optional<Failure> check_identity(const Candidate& candidate, const OpenPlugin& plugin) {
  Failure failure{Stage::kRegister, ANYATTN_INVALID_ARGUMENT, plugin.id, candidate.path, "", ""};
  if (!candidate.id.empty() && candidate.id != plugin.id) {
    failure.reason = fmt::format("it says its id is {}, but {} says {}", plugin.id,
                                 candidate.has_sidecar ? "its sidecar" : "plugins.entries", candidate.id);
    failure.remedy = "make both the same";
    return failure;
  }
  if (candidate.has_sidecar && !same_set(candidate.backends, keys_of(plugin))) {
    failure.reason =
        fmt::format("its sidecar lists {}, but the plugin has {}", list(candidate.backends), list(keys_of(plugin)));
    failure.remedy = "write the sidecar anew with the plugin's build";
    return failure;
  }
  return std::nullopt;
}

[[noreturn]] void throw_failure(const Failure& failure) { throw StatusError(failure.status, describe(failure)); }

}  // namespace

Registry::Registry(std::map<std::string, std::string> override_owner, OpenFn open, InspectFn inspect, uint64_t generation)
    : override_owner_(std::move(override_owner)),
      open_(std::move(open)),
      inspect_(std::move(inspect)),
      generation_(generation) {}

Registry::~Registry() = default;

void Registry::add(std::vector<Candidate> candidates) {
  // However many come in, and whether or not one of them ends the loop.
  struct OneGeneration {
    Registry& registry;
    ~OneGeneration() {
      const std::unique_lock lock(registry.mutex_);
      ++registry.generation_;
    }
  } const one_generation{*this};
  for (Candidate& candidate : candidates) {
    const bool required = candidate.required;
    const std::optional<Failure> failure = add_one(std::move(candidate));
    if (failure && required) throw_failure(*failure);
  }
}

void Registry::add_failure(Failure failure, const std::vector<Key>& names, const std::vector<uint32_t>& providers) {
  const std::unique_lock lock(mutex_);
  Change change(now_);
  record(std::move(failure), names, providers);
  change.done();
  ++generation_;
}

std::optional<Failure> Registry::add_one(Candidate candidate, const Key* wanted) {
  const auto slot = std::make_shared<Slot>(std::move(candidate));
  if (!slot->candidate.has_sidecar || slot->candidate.required)
    if (auto failure = open(slot)) return failure;

  const std::unique_lock lock(mutex_);
  if (slot->plugin) {
    slot->candidate.id = slot->plugin->id;
    slot->candidate.backends = keys_of(*slot->plugin);
    slot->candidate.providers = kinds_of(*slot->plugin);
  }
  const Candidate& known = slot->candidate;
  Change change(now_);
  auto failure = check_names(*slot, known.backends);
  if (!failure && wanted && std::ranges::find(known.backends, *wanted) == known.backends.end())
    failure = Failure{Stage::kRegister,
                      ANYATTN_NOT_FOUND,
                      known.id,
                      known.path,
                      fmt::format("it has {}, not {}", list(known.backends), describe(*wanted)),
                      ""};
  if (failure) {
    record(*failure, known.backends, known.providers);
    change.done();
    return failure;
  }
  if (wanted) forget_failures(*slot);  // a fixed copy: what its predecessors said is past
  now_.plugins.push_back(slot);
  for (const Key& key : known.backends) insert(slot, key);
  for (const uint32_t kind : known.providers) {
    auto& providers = now_.providers[kind];
    providers.push_back(slot);
    if (providers.size() > 1)
      log::info(fmt::format("registry: the provider of {} in {} stays unused: one a device kind, and {} came first",
                            config::device_kind_name(kind), known.id, providers.front()->candidate.id));
  }
  change.done();
  return std::nullopt;
}

std::optional<Failure> Registry::open(const SlotPtr& slot) {
  const std::lock_guard one_opener(slot->opening);
  Candidate candidate;
  {
    const std::shared_lock lock(mutex_);
    if (slot->plugin) return std::nullopt;
    if (slot->failure) return slot->failure;
    candidate = slot->candidate;
  }

  std::shared_ptr<const OpenPlugin> plugin;
  std::optional<Failure> failure;
  try {
    plugin = open_(candidate);
    if (!plugin) throw std::runtime_error("the loader gave no plugin");
    failure = check_identity(candidate, *plugin);
  } catch (const OpenError& error) {
    failure = error.failure();
  } catch (const std::bad_alloc&) {
    throw;  // says nothing of the plugin: it is opened again when it is needed again
  } catch (const std::exception& error) {
    failure = Failure{Stage::kOpen, ANYATTN_INTERNAL, candidate.id, candidate.path, error.what(), ""};
  }

  const std::unique_lock lock(mutex_);
  if (!failure) {
    slot->plugin = std::move(plugin);
    return std::nullopt;
  }
  if (failure->plugin.empty()) failure->plugin = candidate.id;
  if (failure->path.empty()) failure->path = candidate.path;
  Change change(now_);
  drop(slot);
  record(*failure, candidate.backends, candidate.providers);
  slot->failure = failure;
  change.done();
  ++generation_;
  return failure;
}

std::optional<Failure> Registry::check_names(const Slot& slot, const std::vector<Key>& names) const {
  Failure failure{Stage::kRegister, ANYATTN_INVALID_ARGUMENT, slot.candidate.id, slot.candidate.path, "", ""};
  if (const SlotPtr same = find_plugin(slot.candidate.id); same && same.get() != &slot) {
    failure.reason = fmt::format("the id {} is already registered from {}", slot.candidate.id, same->candidate.path);
    failure.remedy = "keep one of the two files";
    return failure;
  }
  for (const Key& key : names) {
    const auto found = now_.entries.find(key);
    if (found == now_.entries.end() || may_override(key.name, slot.candidate.id)) continue;
    const auto& stack = found->second;
    // The plugin that the file gives the name to was found first: this one is the original and goes beneath it.
    const std::string& top = stack.back()->candidate.id;
    if (stack.size() == 1 && may_override(key.name, top)) continue;
    failure.reason = fmt::format("{} belongs to {}", describe(key), top);
    failure.remedy = fmt::format("allow it with `registry: {{override: {{{}: {}}}}}`, or remove one of the two plugins",
                                 key.name, slot.candidate.id);
    return failure;
  }
  return std::nullopt;
}

void Registry::insert(const SlotPtr& slot, const Key& key) {
  const std::string& id = slot->candidate.id;
  auto& stack = now_.entries[key];
  slot->uses.try_emplace(key, std::make_shared<int>(0));
  if (stack.empty()) {
    stack.push_back(slot);
    log::debug(fmt::format("registry: {} belongs to {} ({})", describe(key), id, slot->candidate.path));
  } else if (may_override(key.name, id)) {
    log::info(fmt::format("registry: {} belongs to {} ({}) now, which overrides {}", describe(key), id, slot->candidate.path,
                          stack.back()->candidate.id));
    stack.push_back(slot);
  } else {
    log::info(fmt::format("registry: {} of {} lies beneath the override by {}", describe(key), id, stack.back()->candidate.id));
    stack.insert(stack.begin(), slot);
  }
}

void Registry::drop(const SlotPtr& slot) {
  std::erase(now_.plugins, slot);
  for (auto& [key, stack] : now_.entries) std::erase(stack, slot);
  std::erase_if(now_.entries, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [kind, slots] : now_.providers) std::erase(slots, slot);
  std::erase_if(now_.providers, [](const auto& entry) { return entry.second.empty(); });
}

void Registry::record(Failure failure, std::vector<Key> names, std::vector<uint32_t> providers) {
  log::warning("registry: " + describe(failure));
  // A path that fails again says its latest words.
  std::erase_if(now_.failures, [&](const Recorded& old) { return !failure.path.empty() && old.failure.path == failure.path; });
  now_.failures.push_back({std::move(failure), std::move(names), std::move(providers)});
}

void Registry::forget_failures(const Slot& slot) {
  std::erase_if(now_.failures, [&](const Recorded& old) {
    return old.failure.path == slot.candidate.path || (!old.failure.plugin.empty() && old.failure.plugin == slot.candidate.id);
  });
}

bool Registry::may_override(const std::string& name, const std::string& plugin) const {
  const auto owner = override_owner_.find(name);
  return owner != override_owner_.end() && owner->second == plugin;
}

bool Registry::holds_name(const Recorded& recorded, const Key& key) const {
  return !now_.entries.contains(key) || may_override(key.name, recorded.failure.plugin);
}

Registry::SlotPtr Registry::find_plugin(const std::string& id) const {
  for (const SlotPtr& slot : now_.plugins)
    if (slot->candidate.id == id) return slot;
  return nullptr;
}

Registry::Acquired Registry::acquire(const Key& key) {
  SlotPtr slot;
  {
    const std::shared_lock lock(mutex_);
    const auto found = now_.entries.find(key);
    if (found == now_.entries.end()) {
      for (auto recorded = now_.failures.rbegin(); recorded != now_.failures.rend(); ++recorded)
        if (std::ranges::find(recorded->names, key) != recorded->names.end()) return {std::nullopt, recorded->failure};
      return {};
    }
    slot = found->second.back();
  }
  if (auto failure = open(slot)) return {std::nullopt, std::move(failure)};

  const std::shared_lock lock(mutex_);
  for (const anyattn_backend& table : slot->plugin->backends)
    if (table.device_kind == key.device_kind && table.name == key.name)
      return {OpenBackend{key, slot->plugin, table, slot->plugin->host, slot->uses.at(key)}, std::nullopt};
  return {};  // check_identity has seen to it that this is not reached
}

std::vector<uint32_t> Registry::provider_kinds() const {
  const std::shared_lock lock(mutex_);
  std::vector<uint32_t> kinds;
  kinds.reserve(now_.providers.size());
  for (const auto& [kind, slots] : now_.providers) kinds.push_back(kind);
  for (const Recorded& failed : now_.failures)
    for (const uint32_t kind : failed.providers)
      if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  return kinds;
}

Registry::AcquiredProvider Registry::acquire_provider(uint32_t device_kind) {
  while (true) {
    SlotPtr slot;
    {
      const std::shared_lock lock(mutex_);
      const auto found = now_.providers.find(device_kind);
      if (found == now_.providers.end()) {
        for (auto recorded = now_.failures.rbegin(); recorded != now_.failures.rend(); ++recorded)
          if (std::ranges::find(recorded->providers, device_kind) != recorded->providers.end())
            return {std::nullopt, recorded->failure};
        return {};
      }
      slot = found->second.front();
    }
    if (open(slot)) continue;  // it gave its places up; the next one may have the kind too
    const std::shared_lock lock(mutex_);
    for (const anyattn_device_provider& table : slot->plugin->providers)
      if (table.device_kind == device_kind)
        return {OpenProvider{device_kind, slot->plugin, table, slot->plugin->host}, std::nullopt};
    return {std::nullopt, Failure{Stage::kRegister, ANYATTN_NOT_FOUND, slot->plugin->id, slot->plugin->path,
                                  fmt::format("its sidecar lists a provider of {} that the plugin does not have",
                                              config::device_kind_name(device_kind)),
                                  "write the sidecar anew with the plugin's build"}};
  }
}

}  // namespace anyattn::registry
