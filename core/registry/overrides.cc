// SPDX-License-Identifier: Apache-2.0
// Changes at run time: a plugin file or a plugin that is there takes a name, and gives it back.
#include <fmt/format.h>

#include <algorithm>

#include "config/names.h"
#include "device/status_error.h"
#include "log/log.h"
#include "registry/slot.h"

namespace anyattn::registry {
namespace {

bool is_backend_name(const std::string& name) {
  if (name.empty() || name[0] < 'A' || name[0] > 'Z') return false;
  return std::ranges::all_of(name, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

bool has_key(const OpenPlugin& plugin, const Key& key) {
  return std::ranges::any_of(plugin.backends, [&](const anyattn_backend& backend) {
    return backend.device_kind == key.device_kind && backend.name == key.name;
  });
}

std::string names_of(const OpenPlugin& plugin) {
  std::string text;
  for (const anyattn_backend& backend : plugin.backends)
    text += (text.empty() ? "" : ", ") + describe(Key{backend.name, backend.device_kind});
  return text.empty() ? "no backend" : text;
}

}  // namespace

void Registry::register_backend(const Key& key, const std::string& where) {
  if (!is_backend_name(key.name))
    throw StatusError(ANYATTN_INVALID_ARGUMENT,
                      fmt::format("register_backend: name \"{}\": allowed: [A-Z][A-Z0-9_]*", key.name));
  if (config::device_kind_name(key.device_kind) == "unknown")
    throw StatusError(ANYATTN_INVALID_ARGUMENT,
                      fmt::format("register_backend: device kind {}: allowed: 1 (cpu), 2 (cuda), 10 (hip)", key.device_kind));
  if (where.empty())
    throw StatusError(ANYATTN_INVALID_ARGUMENT,
                      fmt::format("register_backend: {}: where is empty: give an absolute path or the id "
                                  "of a plugin",
                                  describe(key)));
  if (where.front() == '/') {
    register_file(key, where);
  } else {
    register_plugin(key, where);
  }
}

void Registry::register_file(const Key& key, const std::string& path) {
  Candidate candidate;
  try {
    candidate = inspect_(path);
  } catch (const OpenError& error) {
    fail_name(error.failure(), key);
  }
  {
    const std::shared_lock lock(mutex_);
    const auto same =
        std::ranges::find_if(now_.plugins, [&](const SlotPtr& slot) { return slot->candidate.path == candidate.path; });
    if (same != now_.plugins.end()) candidate.id = (*same)->candidate.id;
    if (same == now_.plugins.end()) candidate.origin = "call";
  }
  if (candidate.origin != "call") return register_plugin(key, candidate.id);  // loaded already: only the name moves

  candidate.required = true;
  if (const auto failure = add_one(std::move(candidate), &key)) fail_name(*failure, key);
  settle(key);
}

void Registry::register_plugin(const Key& key, const std::string& id) {
  SlotPtr slot;
  {
    const std::shared_lock lock(mutex_);
    slot = find_plugin(id);
    if (!slot) {
      for (const Recorded& recorded : now_.failures)
        if (recorded.failure.plugin == id) throw StatusError(recorded.failure.status, describe(recorded.failure));
      std::string ids;
      for (const SlotPtr& plugin : now_.plugins) ids += (ids.empty() ? "" : ", ") + plugin->candidate.id;
      throw StatusError(ANYATTN_NOT_FOUND,
                        fmt::format("register_backend: {}: no plugin {}: there are {}; or give an absolute path", describe(key),
                                    id, ids.empty() ? "none" : ids));
    }
  }
  if (const auto failure = open(slot)) throw StatusError(failure->status, describe(*failure));
  if (!has_key(*slot->plugin, key))
    throw StatusError(ANYATTN_NOT_FOUND,
                      fmt::format("register_backend: plugin {} has {}, not {}", id, names_of(*slot->plugin), describe(key)));
  {
    const std::unique_lock lock(mutex_);
    const auto found = now_.entries.find(key);
    if (found != now_.entries.end() && found->second.back() == slot) return;  // it answers already: nothing changes
    if (found != now_.entries.end() && std::ranges::find(found->second, slot) != found->second.end())
      throw StatusError(ANYATTN_INVALID_ARGUMENT,
                        fmt::format("register_backend: {} of {} lies beneath the override by {}: clear the "
                                    "override to bring it back",
                                    describe(key), id, found->second.back()->candidate.id));
    if (const auto failure = check_names(*slot, {key})) throw StatusError(failure->status, describe(*failure));
    Change change(now_);
    insert(slot, key);
    change.done();
  }
  settle(key);
}

void Registry::fail_name(const Failure& failure, const Key& key) {
  const std::unique_lock lock(mutex_);
  Change change(now_);
  const auto same = std::ranges::find_if(now_.failures, [&](const Recorded& old) { return old.failure.path == failure.path; });
  if (same == now_.failures.end()) {
    record(failure, {key}, {});
  } else if (std::ranges::find(same->names, key) == same->names.end()) {
    same->names.push_back(key);
  }
  const StatusError error(failure.status, describe(failure));
  change.done();
  ++generation_;
  throw error;
}

void Registry::settle(const Key& key) {
  const std::unique_lock lock(mutex_);
  for (Recorded& recorded : now_.failures) std::erase(recorded.names, key);
  ++generation_;
}

void Registry::clear_override(const Key& key) {
  {
    const std::unique_lock lock(mutex_);
    const auto found = now_.entries.find(key);
    const auto failed = std::ranges::find_if(now_.failures, [&](const Recorded& recorded) {
      return may_override(key.name, recorded.failure.plugin) && std::ranges::find(recorded.names, key) != recorded.names.end();
    });
    if (found != now_.entries.end() && found->second.size() > 1) {
      const std::string taken_back = found->second.back()->candidate.id;
      Change change(now_);
      found->second.pop_back();
      log::info(fmt::format("registry: {} belongs to {} again; the override by {} is cleared", describe(key),
                            found->second.back()->candidate.id, taken_back));
      change.done();
    } else if (found == now_.entries.end() || failed == now_.failures.end()) {
      throw StatusError(ANYATTN_NOT_FOUND,
                        fmt::format("clear_override: {} is not overridden: {}", describe(key),
                                    found == now_.entries.end() ? "nobody has the name"
                                                                : "it belongs to " + found->second.back()->candidate.id));
    }
  }
  settle(key);
}

}  // namespace anyattn::registry
