// SPDX-License-Identifier: Apache-2.0
#include "selector/walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/names.h"
#include "selector/profile.h"

namespace anyattn::selector {
namespace {

Candidate failed_candidate(const registry::Key& key, uint32_t phase, const registry::Failure& failure) {
  Candidate candidate{key.name, failure.plugin, failure.path, key.device_kind, phase, failure.stage, Verdict::kFailed, {}, {}};
  candidate.reasons.push_back(core_reason("plugin", describe(failure)));
  return candidate;
}

}  // namespace

std::optional<Taken> Walk::ask_name(const std::string& name, const OwnedProblem& problem, const anyattn_device_facts& device,
                                    bool is_must, const Check& check) {
  const registry::Key key{name, device.device_kind};
  bool held = false;
  for (const registry::View::NamedFailure& failure : view_.failures) {
    if (failure.key != key || !failure.holds_name) continue;  // who merely wished for the name is in `list`'s skipped
    candidates_.push_back(failed_candidate(key, problem.phase(), failure.failure));
    held = true;
  }
  const auto entry = std::ranges::find(view_.entries, key, &registry::View::Entry::key);
  if (entry == view_.entries.end()) {
    if (held) return std::nullopt;
    Candidate absent{name, "", "", key.device_kind, problem.phase(), registry::Stage::kDiscover, Verdict::kFailed, {}, {}};
    absent.reasons.push_back(core_reason(
        "backend", fmt::format("no plugin found offers {} on {}", name, config::device_kind_name(key.device_kind))));
    candidates_.push_back(std::move(absent));
    return std::nullopt;
  }
  if (const std::string why = is_must ? std::string() : passed_over(key); !why.empty()) {
    candidates_.push_back({name,
                           entry->plugin,
                           entry->path,
                           key.device_kind,
                           problem.phase(),
                           registry::Stage::kSupports,
                           Verdict::kRefused,
                           {core_reason("quarantine", why)},
                           {}});
    return std::nullopt;
  }
  if (held && is_must) return std::nullopt;  // the file gives the name to a plugin that failed: no way round it

  const registry::Registry::Acquired acquired = registry_.acquire(key);
  if (!acquired.backend) {
    const registry::Failure gone{
        registry::Stage::kRegister, ANYATTN_NOT_FOUND, entry->plugin, entry->path, "it gave the name up meanwhile", ""};
    candidates_.push_back(failed_candidate(key, problem.phase(), acquired.failure.value_or(gone)));
    return std::nullopt;
  }
  Taken taken{*acquired.backend, ask(*acquired.backend, problem, device), ""};
  Candidate candidate{name,
                      taken.backend.plugin->id,
                      taken.backend.plugin->path,
                      key.device_kind,
                      problem.phase(),
                      registry::Stage::kSupports,
                      taken.answer.verdict,
                      taken.answer.reasons,
                      taken.answer.report};
  if (candidate.verdict == Verdict::kEligible && check) {
    if (auto reason = check(taken)) {
      candidate.verdict = Verdict::kRefused;
      candidate.reasons.push_back(std::move(*reason));
    }
  }
  candidates_.push_back(std::move(candidate));
  if (candidates_.back().verdict != Verdict::kEligible) return std::nullopt;
  return taken;
}

std::string Walk::passed_over(const registry::Key& key) const {
  if (request_.successor && request_.successor->of == key) return request_.successor->why;
  return request_.quarantine ? request_.quarantine->reason(key) : std::string();
}

std::optional<Taken> Walk::run(const OwnedProblem& problem, const anyattn_device_facts& device, const std::optional<Must>& must,
                               bool ask_all, const Check& check) {
  std::vector<Ordered> names;
  if (!must || ask_all) names = ask_order(config_, view_, device.device_kind);
  if (must && std::ranges::find(names, must->name, &Ordered::name) == names.end())
    names.insert(names.begin(), {must->name, false});

  std::vector<std::string> order;
  for (const Ordered& name : names) order.push_back(name.name);
  const config::Profile::Entry* entry = request_.profile ? find_entry(*request_.profile, problem, device, view_) : nullptr;
  if (entry) apply_profile(*entry, names);

  std::optional<Taken> first;
  for (const Ordered& name : names) {
    const bool is_must = must && must->name == name.name;
    const size_t before = candidates_.size();
    std::optional<Taken> taken = ask_name(name.name, problem, device, is_must, check);
    for (size_t i = before; i < candidates_.size(); ++i) {
      candidates_[i].place = static_cast<uint32_t>(std::ranges::find(order, name.name) - order.begin());
      if (entry) candidates_[i].measured = measured(*entry, name.name);
    }
    if (!taken || first || (must && !is_must)) continue;
    taken->origin = must ? must->origin : name.profiled ? "profile" : name.listed ? "order" : "unlisted";
    candidates_.back().verdict = Verdict::kChosen;
    first = std::move(taken);
    if (!ask_all) break;
  }
  return first;
}

}  // namespace anyattn::selector
