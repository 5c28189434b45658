// SPDX-License-Identifier: Apache-2.0
#include "selector/error_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/names.h"
#include "config/nearest.h"
#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string(separator)) + part;
  return text;
}

std::string reasons_text(const Candidate& candidate) {
  std::vector<std::string> parts;
  parts.reserve(candidate.reasons.size());
  for (const Reason& reason : candidate.reasons) parts.push_back(describe(reason));
  return join(parts, "; ");
}

std::string candidate_text(const Candidate& candidate) {
  const std::string who =
      candidate.plugin.empty() ? candidate.backend : fmt::format("{} ({})", candidate.backend, candidate.plugin);
  return fmt::format("{} {} at {}: {}", who, verdict_name(candidate.verdict), registry::stage_name(candidate.stage),
                     reasons_text(candidate));
}

// Files that were skipped before their names were learnt: one of them may be the one that was meant.
std::string skipped_text(const registry::View& view) {
  if (view.other_failures.empty()) return "";
  std::vector<std::string> parts;
  parts.reserve(view.other_failures.size());
  for (const registry::Failure& failure : view.other_failures) parts.push_back(describe(failure));
  return "; skipped: " + join(parts, "; ");
}

std::string devices_with(const std::string& name, const registry::View& view) {
  std::vector<std::string> kinds;
  for (const registry::View::Entry& entry : view.entries)
    if (entry.key.name == name) kinds.emplace_back(config::device_kind_name(entry.key.device_kind));
  return kinds.empty() ? "" : fmt::format("; it is there for {}", join(kinds, ", "));
}

}  // namespace

ErrorText explain_must(const Must& must, const OwnedProblem& problem, uint32_t device_kind, std::span<const Candidate> asked,
                       const config::Config& config, const registry::View& view) {
  const std::string_view device = config::device_kind_name(device_kind);
  const std::vector<std::string> known = known_names(config, view);
  if (std::ranges::find(known, must.name) == known.end()) {
    const std::string nearest = config::nearest(must.name, known);
    return {Error::kUnknownName, ANYATTN_NOT_FOUND,
            fmt::format("selection: backend {} (asked for by {}) is unknown{}; known: {}{}", must.name, must.origin,
                        nearest.empty() ? "" : ": did you mean " + nearest + "?", known.empty() ? "none" : join(known, ", "),
                        skipped_text(view))};
  }
  std::vector<std::string> failures;
  int32_t failure_status = ANYATTN_INTERNAL;
  for (const registry::View::NamedFailure& failure : view.failures) {
    if (failure.key != registry::Key{must.name, device_kind} || !failure.holds_name) continue;
    failures.push_back(describe(failure.failure));
    failure_status = failure.failure.status;
  }
  const Candidate* own = nullptr;  // its own answer comes after those of other plugins that failed for the name
  for (const Candidate& candidate : asked)
    if (candidate.backend == must.name && candidate.device_kind == device_kind) own = &candidate;
  if (failures.empty() && own && own->stage == registry::Stage::kDiscover && own->plugin.empty())
    return {Error::kNotInBuild, ANYATTN_NOT_FOUND,
            fmt::format("selection: backend {} (asked for by {}) is known, but no plugin found offers it on {}{}{}", must.name,
                        must.origin, device, devices_with(must.name, view), skipped_text(view))};
  if (failures.empty() && own && own->verdict == Verdict::kRefused)
    return {Error::kUnfit, ANYATTN_UNSUPPORTED,
            fmt::format("selection: backend {} (asked for by {}) does not take this problem on {}: {}; problem: {}", must.name,
                        must.origin, device, reasons_text(*own), describe(problem.view()))};
  if (failures.empty() && own) failures.push_back(reasons_text(*own));
  return {Error::kPluginFailed, failure_status,
          fmt::format("selection: backend {} (asked for by {}) failed on {}: {}", must.name, must.origin, device,
                      join(failures, "; "))};
}

ErrorText explain_nobody(const OwnedProblem& problem, uint32_t device_kind, std::span<const Candidate> asked,
                         const registry::View& view) {
  std::vector<std::string> parts;
  for (const Candidate& candidate : asked) parts.push_back(candidate_text(candidate));
  const bool found_nothing = view.entries.empty() && view.failures.empty() && view.other_failures.empty();
  return {
      Error::kNobody, ANYATTN_UNSUPPORTED,
      fmt::format("selection: no backend takes this problem on {}: {}{}{}; problem: {}", config::device_kind_name(device_kind),
                  parts.empty() ? "none is there" : join(parts, "; "), skipped_text(view),
                  found_nothing ? "; no plugin was found at all: name its folder in plugins.search" : "",
                  describe(problem.view()))};
}

}  // namespace anyattn::selector
