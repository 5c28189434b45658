// SPDX-License-Identifier: Apache-2.0
#include "selector/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/names.h"
#include "discovery/content.h"
#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

// Every slowest round of `one` beats every fastest of `other`; both are in every shape.
bool beats(const config::Profile::Entry& entry, const std::string& one, const std::string& other) {
  return std::ranges::all_of(entry.shapes, [&](const config::Profile::Shape& shape) {
    return shape.times.at(one).slowest_us < shape.times.at(other).fastest_us;
  });
}

std::string changed(std::string_view what, std::string_view then, std::string_view now) {
  return fmt::format("it was measured with {} {}, now it is {}", what, then, now);
}

}  // namespace

std::string profile_key(const OwnedProblem& problem, uint32_t device_kind) {
  return discovery::hash_text(std::string(config::device_kind_name(device_kind)) + all_fields(problem.view()));
}

bool is_about(const config::Profile& profile, const anyattn_device_facts& device) {
  return profile.device.kind == device.device_kind;
}

std::string why_stale(const config::Profile& profile, const anyattn_device_facts& device, const registry::View& view) {
  const config::Profile::Device& then = profile.device;
  if (then.name != device.name) return changed("the device", then.name, device.name);
  if (then.architecture != device.architecture) return changed("the architecture", then.architecture, device.architecture);
  if (then.num_multiprocessors != device.num_multiprocessors)
    return changed("num_multiprocessors", fmt::format("{}", then.num_multiprocessors),
                   fmt::format("{}", device.num_multiprocessors));
  if (then.driver_version != device.driver_version)
    return changed("driver_version", fmt::format("{}", then.driver_version), fmt::format("{}", device.driver_version));
  for (const config::Profile::Plugin& plugin : profile.plugins) {
    const auto now = std::ranges::find(view.entries, plugin.id, &registry::View::Entry::plugin);
    if (now == view.entries.end())
      return fmt::format("it was measured with plugin {} {}, which is not here", plugin.id, plugin.version);
    if (now->content != plugin.content)
      return changed("plugin " + plugin.id, fmt::format("{} of content {}", plugin.version, plugin.content),
                     now->content.empty() ? "of unknown content" : now->content);
  }
  return "";
}

const config::Profile::Entry* find_entry(const config::Profile& profile, const OwnedProblem& problem,
                                         const anyattn_device_facts& device, const registry::View& view) {
  if (!is_about(profile, device)) return nullptr;
  const auto entry = profile.entries.find(profile_key(problem, device.device_kind));
  return entry != profile.entries.end() && why_stale(profile, device, view).empty() ? &entry->second : nullptr;
}

void apply_profile(const config::Profile::Entry& entry, std::vector<Ordered>& names) {
  std::vector<size_t> places;
  std::vector<Ordered> sorted;
  for (size_t i = 0; i < names.size(); ++i) {
    if (measured(entry, names[i].name).empty()) continue;
    places.push_back(i);
    sorted.push_back(names[i]);
    for (size_t at = sorted.size() - 1; at > 0 && beats(entry, sorted[at].name, sorted[at - 1].name); --at) {
      std::swap(sorted[at], sorted[at - 1]);
      sorted[at - 1].profiled = true;
    }
  }
  for (size_t i = 0; i < places.size(); ++i) names[places[i]] = std::move(sorted[i]);
}

std::vector<Measured> measured(const config::Profile::Entry& entry, const std::string& backend) {
  std::vector<Measured> all;
  for (const config::Profile::Shape& shape : entry.shapes) {
    const auto times = shape.times.find(backend);
    if (times == shape.times.end()) return {};
    all.push_back({shape.text, times->second});
  }
  return all;
}

}  // namespace anyattn::selector
