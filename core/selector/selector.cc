// SPDX-License-Identifier: Apache-2.0
#include "selector/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/names.h"
#include "selector/error_text.h"
#include "selector/problem_text.h"
#include "selector/profile.h"
#include "selector/walk.h"

namespace anyattn::selector {
namespace {

// What stays the same while one device is asked.
struct Question {
  const config::Config& config;
  const anyattn_device_facts& device;
  bool ask_all;
  const Request::Successor* successor;
};

// Keeps what was built on the backend in use, or why not.
Walk::Check check_of(const Request::Successor* successor) {
  if (!successor) return {};
  return [successor](const Taken& candidate) -> std::optional<Reason> {
    const std::vector<OwnedSpec>& specs = candidate.answer.specs;
    if (successor->spec_digest != 0 && std::ranges::find(specs, successor->spec_digest, &OwnedSpec::digest) == specs.end())
      return Reason{ANYATTN_REASON_COMBINATION, "kv_cache_spec", candidate.backend.key.name,
                    fmt::format("a spec that {} writes", successor->of.name), ""};
    return successor->check ? successor->check(candidate.answer.report) : std::nullopt;
  };
}

Decision refuse(Decision decision, ErrorText error) {
  decision.error = error.error;
  decision.status = error.status;
  decision.text = std::move(error.text);
  return decision;
}

Decision refuse_problem(Decision decision, const std::string& text) {
  return refuse(std::move(decision), {Error::kInvalidProblem, ANYATTN_INVALID_ARGUMENT, "selection: " + text});
}

// "auto" is the dtype of new keys and values: the query's, or out's where the query is quantised.
void resolve_kv_cache_dtype(OwnedProblem& problem) {
  if (!problem.is_paged() || (problem.kv_cache_dtype() && *problem.kv_cache_dtype() != "auto")) return;
  const anyattn_problem view = problem.view();
  const uint32_t dtype = problem.has(ANYATTN_FEATURE_QUANTISED_QUERY) ? view.out_dtype : view.q_dtype;
  problem.set_kv_cache_dtype(std::string(dtype_name(dtype)));
}

OwnedProblem with_phase(OwnedProblem problem, uint32_t phase) {
  problem.set_phase(phase);
  return problem;
}

Choice choice_of(uint32_t phase, Taken taken) {
  return {phase, std::move(taken.backend), taken.answer.report, std::move(taken.origin)};
}

Decision accept(Decision decision, const anyattn_device_facts& device, std::vector<Choice> choices,
                std::vector<OwnedSpec> specs, std::string origin) {
  decision.device_kind = device.device_kind;
  decision.device_ordinal = device.ordinal;
  if (decision.problem.is_paged()) {
    decision.block_size_origin = decision.problem.block_size() != 0 ? "user" : "backend";
    decision.problem.set_block_size(choices.front().report.block_size);
  }
  decision.choices = std::move(choices);
  decision.specs = std::move(specs);
  decision.origin = std::move(origin);
  return decision;
}

// One backend for the whole problem.
Decision select_one(Decision decision, const Question& question, Walk& walk, const std::optional<Must>& must) {
  const anyattn_device_facts& device = question.device;
  const size_t start = walk.candidates().size();
  std::optional<Taken> taken = walk.run(decision.problem, device, must, question.ask_all, check_of(question.successor));
  if (!taken) {
    const std::span asked = std::span(walk.candidates()).subspan(start);
    ErrorText error = must ? explain_must(*must, decision.problem, device.device_kind, asked, question.config, walk.view())
                           : explain_nobody(decision.problem, device.device_kind, asked, walk.view());
    return refuse(std::move(decision), std::move(error));
  }
  std::string origin = taken->origin;
  std::vector<OwnedSpec> specs = std::move(taken->answer.specs);
  const uint32_t phase = decision.problem.phase();
  return accept(std::move(decision), device, {choice_of(phase, std::move(*taken))}, std::move(specs), std::move(origin));
}

// Block sizes worth trying for two backends: each one's answer, then each one's list.
std::vector<uint32_t> shared_sizes(const anyattn_support_report& one, const anyattn_support_report& other) {
  std::vector<uint32_t> sizes{one.block_size, other.block_size};
  for (const anyattn_support_report* report : {&one, &other})
    sizes.insert(sizes.end(), report->block_sizes, report->block_sizes + report->num_block_sizes);
  return sizes;
}

// Two backends that must read each other's blocks.
struct Pair {
  Answer decode;
  Answer prefill;
  std::vector<OwnedSpec> specs;  // both accept, in decode's order
};

std::optional<Pair> pair_up(const Taken& decode, const Taken& prefill, const OwnedProblem& problem,
                            const anyattn_device_facts& device) {
  if (!problem.is_paged()) return Pair{decode.answer, prefill.answer, {}};
  const bool user_set = problem.block_size() != 0;
  for (const uint32_t size : shared_sizes(decode.answer.report, prefill.answer.report)) {
    if (size == 0 || (user_set && size != problem.block_size())) continue;
    OwnedProblem sized = problem;
    sized.set_block_size(size);
    Pair pair{ask(decode.backend, with_phase(sized, ANYATTN_PHASE_DECODE), device),
              ask(prefill.backend, with_phase(sized, ANYATTN_PHASE_PREFILL), device),
              {}};
    pair.specs = common_specs(pair.decode.specs, pair.prefill.specs);
    if (!pair.specs.empty()) return pair;
  }
  return std::nullopt;
}

// One backend a phase, because rules say so for at least one of them. Both read the same blocks or neither is taken.
Decision select_two(Decision decision, const Question& question, Walk& walk, const Musts& parts) {
  const std::array<const std::optional<Must>*, 2> musts{&parts.decode, &parts.prefill};
  constexpr std::array<uint32_t, 2> kPhases{ANYATTN_PHASE_DECODE, ANYATTN_PHASE_PREFILL};
  const anyattn_device_facts& device = question.device;
  const size_t first = parts.decode ? 0 : 1;  // the one a rule names; the other follows it
  std::array<std::optional<Taken>, 2> taken;
  const auto pair_with_first = [&](const Taken& other) {
    return first == 0 ? pair_up(*taken[0], other, decision.problem, device)
                      : pair_up(other, *taken[1], decision.problem, device);
  };

  for (const size_t part : {first, 1 - first}) {
    const size_t start = walk.candidates().size();
    const OwnedProblem problem = with_phase(decision.problem, kPhases[part]);
    bool must_is_unpaired = false;
    Walk::Check check;
    if (part != first)
      check = [&](const Taken& candidate) -> std::optional<Reason> {
        if (pair_with_first(candidate)) return std::nullopt;
        must_is_unpaired = must_is_unpaired || (*musts[part] && (*musts[part])->name == candidate.backend.key.name);
        return Reason{ANYATTN_REASON_COMBINATION, "kv_cache_spec", candidate.backend.key.name,
                      fmt::format("a spec that {} ({} by {}) accepts too", taken[first]->backend.key.name,
                                  phase_name(kPhases[first]), taken[first]->origin),
                      "one backend for both phases"};
      };
    taken[part] = walk.run(problem, device, *musts[part], question.ask_all, check);
    if (taken[part]) continue;

    const std::span asked = std::span(walk.candidates()).subspan(start);
    const std::optional<Must>& must = *musts[part];
    ErrorText error = must ? explain_must(*must, problem, device.device_kind, asked, question.config, walk.view())
                           : explain_nobody(problem, device.device_kind, asked, walk.view());
    if (must_is_unpaired) error.error = Error::kNoCommonSpec;
    for (Candidate& candidate : walk.candidates())  // the other part's choice is none without this one
      if (candidate.verdict == Verdict::kChosen) candidate.verdict = Verdict::kEligible;
    return refuse(std::move(decision), std::move(error));
  }

  const std::string origin = fmt::format("decode: {}; prefill: {}", taken[0]->origin, taken[1]->origin);
  if (taken[0]->backend.key == taken[1]->backend.key) {
    // The same one after all: one impl is enough if it takes both phases at once.
    Answer both = ask(taken[0]->backend, decision.problem, device);
    if (both.verdict == Verdict::kEligible) {
      std::vector<OwnedSpec> specs = std::move(both.specs);
      Choice choice{ANYATTN_PHASE_BOTH, taken[0]->backend, both.report, origin};
      return accept(std::move(decision), device, {std::move(choice)}, std::move(specs), origin);
    }
  }
  std::optional<Pair> pair = pair_up(*taken[0], *taken[1], decision.problem, device);
  if (!pair)  // the check has just seen one
    return refuse(std::move(decision), {Error::kNoCommonSpec, ANYATTN_INTERNAL,
                                        fmt::format("selection: {} and {} answer the same question differently each time",
                                                    taken[0]->backend.key.name, taken[1]->backend.key.name)});
  taken[0]->answer = std::move(pair->decode);
  taken[1]->answer = std::move(pair->prefill);
  std::vector<Choice> choices{choice_of(kPhases[0], std::move(*taken[0])), choice_of(kPhases[1], std::move(*taken[1]))};
  return accept(std::move(decision), device, std::move(choices), std::move(pair->specs), origin);
}

ProfileUse use_of(const Request& request, const OwnedProblem& problem, const registry::View& view) {
  ProfileUse use;
  if (request.profile || request.ask_all) use.key = profile_key(problem, request.device->device_kind);
  if (!request.profile || !is_about(*request.profile, *request.device)) return use;
  use.file = request.profile->file;
  use.stale = why_stale(*request.profile, *request.device, view);
  use.found = use.stale.empty() && request.profile->entries.contains(use.key);
  return use;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 4> kNames{"chosen", "eligible", "refused", "failed"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string describe(const Reason& reason) {
  if (reason.id == 0) return reason.hint;
  std::string text = fmt::format("{} {}", reason.field, reason.wanted);
  if (!reason.allowed.empty()) text += ", allowed: " + reason.allowed;
  if (!reason.hint.empty()) text += " (" + reason.hint + ")";
  return text;
}

Decision select(const Request& request, const config::Config& config, registry::Registry& registry) {
  Decision decision;
  Walk walk(config, registry, request);
  decision.generation = walk.view().generation;
  if (std::string text = validate_problem(request.problem); !text.empty()) return refuse_problem(std::move(decision), text);
  if (!request.device) return refuse_problem(std::move(decision), "device is null: give the facts of one");
  decision.device_kind = request.device->device_kind;
  decision.device_ordinal = request.device->ordinal;
  decision.problem = OwnedProblem(*request.problem);
  resolve_kv_cache_dtype(decision.problem);
  decision.profile = use_of(request, decision.problem, walk.view());

  // Rules may name a device, so each device has musts of its own; a must on the device asked for never leaves it.
  const auto select_on = [&](const anyattn_device_facts& device, const Musts& musts) {
    const Question question{config, device, request.ask_all, request.successor};
    return musts.same() ? select_one(decision, question, walk, musts.decode) : select_two(decision, question, walk, musts);
  };
  const auto musts_on = [&](const anyattn_device_facts& device) {
    return find_musts(request.backend, config, decision.problem, device.device_kind);
  };
  const Musts musts = musts_on(*request.device);
  Decision result = select_on(*request.device, musts);
  for (const anyattn_device_facts* device : request.fallback_devices) {
    if (result.ok() || musts.any()) break;
    Decision fallen = select_on(*device, musts_on(*device));
    if (!fallen.ok()) continue;
    fallen.origin += fmt::format(", fallen from {} to {}", config::device_kind_name(request.device->device_kind),
                                 config::device_kind_name(device->device_kind));
    result = std::move(fallen);
  }
  result.candidates = std::move(walk.candidates());
  return result;
}

}  // namespace anyattn::selector
