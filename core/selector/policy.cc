// SPDX-License-Identifier: Apache-2.0
#include "selector/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/names.h"
#include "config/nearest.h"
#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

constexpr std::string_view kDevice = "device";

bool option_matches(const config::Option& option, const anyattn_problem& problem, uint32_t device_kind, bool whole) {
  if (option.key == kDevice) return option.value == config::device_kind_name(device_kind);
  if (whole && option.key == "phase" && option.value == phase_name(ANYATTN_PHASE_BOTH)) return true;
  const Field* field = find_field(option.key);
  return field && field_matches(*field, problem, option.value);
}

// flag and environment stand above rules; a backend named in the file stands below them.
bool is_above_rules(const config::Origin& origin) { return origin.text == "flag" || origin.text.starts_with("environment "); }

std::optional<Must> find_must(const std::string& call, const config::Config& config, const OwnedProblem& problem,
                              uint32_t phase, uint32_t device_kind) {
  if (!call.empty()) return Must{call, "call"};
  const bool named = !config.backend.empty();
  if (named && is_above_rules(config.backend_origin)) return Must{config.backend, config.backend_origin.text};

  const bool whole = problem.phase() == ANYATTN_PHASE_BOTH;
  anyattn_problem view = problem.view();
  view.phase = phase;
  for (const config::Rule& rule : config.rules) {
    const auto matches = [&](const config::Option& option) { return option_matches(option, view, device_kind, whole); };
    if (std::ranges::all_of(rule.when, matches)) return Must{rule.backend, "rule " + rule.origin.text};
  }
  if (named) return Must{config.backend, "selection.backend " + config.backend_origin.text};
  return std::nullopt;
}

std::string device_kinds_text() {
  std::string text;
  for (const config::DeviceKindName& kind : config::kDeviceKinds) text += (text.empty() ? "" : " | ") + std::string(kind.name);
  return text;
}

std::string check_option(const config::Option& option) {
  if (option.key == kDevice) {
    if (config::device_kind_from_name(option.value)) return "";
    return fmt::format("device {}: allowed: {}", option.value, device_kinds_text());
  }
  const Field* field = find_field(option.key);
  if (!field) {
    const std::string nearest = config::nearest(option.key, rule_field_names());
    return fmt::format("{} is neither a field nor a feature of the problem{}", option.key,
                       nearest.empty() ? "" : "; nearest: " + nearest);
  }
  const std::string allowed = field_value_problem(*field, option.value);
  return allowed.empty() ? "" : fmt::format("{} {}: allowed: {}", option.key, option.value, allowed);
}

}  // namespace

Musts find_musts(const std::string& call, const config::Config& config, const OwnedProblem& problem, uint32_t device_kind) {
  const bool whole = problem.phase() == ANYATTN_PHASE_BOTH;
  return {find_must(call, config, problem, whole ? ANYATTN_PHASE_DECODE : problem.phase(), device_kind),
          find_must(call, config, problem, whole ? ANYATTN_PHASE_PREFILL : problem.phase(), device_kind)};
}

std::vector<Ordered> ask_order(const config::Config& config, const registry::View& view, uint32_t device_kind) {
  std::vector<Ordered> names;
  const auto add = [&](const std::string& name, bool listed) {
    if (std::ranges::find(names, name, &Ordered::name) == names.end()) names.push_back({name, listed});
  };
  if (const auto order = config.order.find(std::string(config::device_kind_name(device_kind))); order != config.order.end())
    for (const std::string& name : order->second) add(name, true);
  for (const registry::View::Entry& entry : view.entries)
    if (entry.key.device_kind == device_kind) add(entry.key.name, false);
  for (const registry::View::NamedFailure& failure : view.failures)
    if (failure.key.device_kind == device_kind) add(failure.key.name, false);
  return names;
}

std::vector<std::string> known_names(const config::Config& config, const registry::View& view) {
  std::set<std::string> names;
  for (const auto& [kind, order] : config.order) names.insert(order.begin(), order.end());
  for (const registry::View::Entry& entry : view.entries) names.insert(entry.key.name);
  for (const registry::View::NamedFailure& failure : view.failures) names.insert(failure.key.name);
  return {names.begin(), names.end()};
}

std::string check_policy(const config::Config& config) {
  for (const config::Rule& rule : config.rules) {
    if (rule.backend.empty()) return fmt::format("{}: selection.rules: backend is empty: give a name", rule.origin.text);
    for (const config::Option& option : rule.when)
      if (const std::string text = check_option(option); !text.empty())
        return fmt::format("{}: selection.rules.when: {}",
                           option.origin.text == "default" ? rule.origin.text : option.origin.text, text);
  }
  return "";
}

}  // namespace anyattn::selector
