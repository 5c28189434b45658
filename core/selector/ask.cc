// SPDX-License-Identifier: Apache-2.0
#include "selector/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anyattn/util.h"
#include "device/status_error.h"
#include "loader/call.h"
#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

constexpr uint32_t kMaxListedSizes = sizeof(anyattn_support_report::block_sizes) / sizeof(uint32_t);

std::string copy(const char* text) { return text ? text : ""; }

void add_reason(void* context, const anyattn_reason* given) {
  if (!given) return;
  anyattn_reason reason;
  anyattn_read_struct(&reason, sizeof reason, given);
  static_cast<std::vector<Reason>*>(context)->push_back(
      {reason.id, copy(reason.field), copy(reason.wanted), copy(reason.allowed), copy(reason.hint)});
}

void add_spec(void* context, const anyattn_kv_cache_spec* given) {
  if (given) static_cast<std::vector<OwnedSpec>*>(context)->emplace_back(*given);
}

bool takes_block_size(const anyattn_support_report& report, uint32_t size) {
  if (report.block_size_multiple != 0 && size % report.block_size_multiple == 0) return true;
  const auto* end = report.block_sizes + std::min(report.num_block_sizes, kMaxListedSizes);
  return std::find(report.block_sizes, end, size) != end;
}

std::string block_size_contradiction(const anyattn_support_report& report, const OwnedProblem& problem) {
  if (!problem.is_paged())
    return report.block_size == 0 ? "" : fmt::format("names block_size {} although keys are ragged", report.block_size);
  if (report.num_block_sizes > kMaxListedSizes)
    return fmt::format("num_block_sizes {}: at most {}", report.num_block_sizes, kMaxListedSizes);
  if (report.block_size == 0) return "takes the problem but names no block_size";
  if (problem.block_size() != 0 && report.block_size != problem.block_size())
    return fmt::format("was asked for block_size {} and answers {}", problem.block_size(), report.block_size);
  if (!takes_block_size(report, report.block_size))
    return fmt::format("takes block_size {}, which is neither in its list nor a multiple of {}", report.block_size,
                       report.block_size_multiple);
  return "";
}

// What a yes must not say. Empty, or the contradiction as the end of a sentence that begins with the backend's name.
std::string contradiction(const anyattn_support_report& report, const registry::OpenBackend& backend,
                          const OwnedProblem& problem) {
  const anyattn_backend& table = backend.table;
  if (problem.is_mla() && !table.forward_mqa) return "takes an mla problem but has no forward_mqa";
  if (!problem.is_mla() && !table.forward) return "takes a problem without mla but has no forward";
  if (std::string text = block_size_contradiction(report, problem); !text.empty()) return text;
  if (problem.is_paged() && !table.kv_cache_spec) return "takes paged keys but has no kv_cache_spec";
  if (problem.is_paged() && !table.kv_cache_update) return "takes paged keys but has no kv_cache_update";
  if (report.query_lengths < ANYATTN_QUERY_SINGLE || report.query_lengths > ANYATTN_QUERY_ANY)
    return fmt::format("query_lengths {}: 1 (single), 2 (uniform) or 3 (any)", report.query_lengths);
  if (problem.phase() != ANYATTN_PHASE_DECODE && report.query_lengths != ANYATTN_QUERY_ANY)
    return fmt::format("takes phase {} but only {} query lengths", phase_name(problem.phase()),
                       query_lengths_name(report.query_lengths));
  if (report.needs_host_lengths > 1) return fmt::format("needs_host_lengths {}: 0 or 1", report.needs_host_lengths);
  if (problem.has(ANYATTN_FEATURE_LSE)) {
    if ((report.lse_bases & (ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2)) == 0) return "takes lse but lists no lse base";
    if (!table.merge_states) return "takes lse but has no merge_states";
  }
  const uint32_t wanted = problem.view().graph_level;
  if (problem.has(ANYATTN_FEATURE_GRAPH) && report.graph_level < wanted)
    return fmt::format("was asked for graph_level {} and answers {}", graph_level_name(wanted),
                       graph_level_name(report.graph_level));
  if (!std::isfinite(report.cost_hint) || report.cost_hint < 0)
    return fmt::format("cost_hint {}: finite and >= 0", report.cost_hint);
  return "";
}

// Gaps between graph levels are for later ones; an unknown level reads as the next lower known one.
uint32_t known_graph_level(uint32_t level) {
  for (const uint32_t known : {ANYATTN_GRAPH_ALWAYS, ANYATTN_GRAPH_UNIFORM_BATCH, ANYATTN_GRAPH_SINGLE_TOKEN_DECODE})
    if (level >= known) return known;
  return ANYATTN_GRAPH_NEVER;
}

Answer failed(Answer answer, std::string field, const registry::OpenBackend& backend, const std::string& text) {
  answer.verdict = Verdict::kFailed;
  answer.reasons = {core_reason(std::move(field), fmt::format("{} ({}) {}", backend.key.name, backend.plugin->id, text))};
  answer.specs.clear();
  return answer;
}

Answer ask_specs(Answer answer, const registry::OpenBackend& backend, OwnedProblem problem,
                 const anyattn_device_facts& device) {
  problem.set_block_size(answer.report.block_size);
  const anyattn_problem view = problem.view();
  ErrorBuffer error;
  const int32_t status = loader::call({backend.key.name.c_str(), "kv_cache_spec"}, error.get(), backend.table.kv_cache_spec,
                                      backend.host, &device, &view, &add_spec, static_cast<void*>(&answer.specs));
  if (status != ANYATTN_OK)
    return failed(std::move(answer), "kv_cache_spec", backend,
                  fmt::format("takes the problem but its kv_cache_spec fails with status {}: {}", status, error.text()));
  if (answer.specs.empty())
    return failed(std::move(answer), "kv_cache_spec", backend, "takes the problem but accepts no kv cache spec");
  for (const OwnedSpec& spec : answer.specs) {
    const std::string mistake = validate_spec(spec, problem.block_size());
    if (mistake.empty()) continue;
    const std::string text = fmt::format("gives a kv cache spec {} that is wrong: {}", spec.name(), mistake);
    return failed(std::move(answer), "kv_cache_spec", backend, text);
  }
  return answer;
}

}  // namespace

Reason core_reason(std::string field, std::string text) { return {0, std::move(field), "", "", std::move(text)}; }

Answer ask(const registry::OpenBackend& backend, const OwnedProblem& problem, const anyattn_device_facts& device) {
  Answer answer;
  answer.report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  const anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, &answer.reasons, &add_reason};
  const anyattn_problem view = problem.view();
  ErrorBuffer error;
  const int32_t status = loader::call({backend.key.name.c_str(), "supports"}, error.get(), backend.table.supports, backend.host,
                                      &device, &view, &sink, &answer.report);

  const bool refused = status == ANYATTN_UNSUPPORTED || (status == ANYATTN_OK && answer.report.supported == 0);
  if (refused && !answer.reasons.empty()) {
    answer.verdict = Verdict::kRefused;
    return answer;
  }
  if (refused) return failed(std::move(answer), "report", backend, "refuses without giving a reason");
  if (status != ANYATTN_OK)
    return failed(std::move(answer), "supports", backend,
                  fmt::format("fails in supports with status {}: {}", status, error.text()));
  if (answer.report.supported != 1) {
    const std::string text = fmt::format("answers supported {}: 0 or 1", answer.report.supported);
    return failed(std::move(answer), "report", backend, text);
  }
  if (!answer.reasons.empty()) {
    const std::string first = describe(answer.reasons.front());
    return failed(std::move(answer), "report", backend, "takes the problem and gives reasons against it: " + first);
  }
  if (const std::string text = contradiction(answer.report, backend, problem); !text.empty())
    return failed(std::move(answer), "report", backend, text);
  answer.report.graph_level = known_graph_level(answer.report.graph_level);
  answer.report.kernels[sizeof answer.report.kernels - 1] = 0;
  return problem.is_paged() ? ask_specs(std::move(answer), backend, problem, device) : answer;
}

std::vector<OwnedSpec> common_specs(const std::vector<OwnedSpec>& best, const std::vector<OwnedSpec>& other) {
  std::vector<OwnedSpec> common;
  for (const OwnedSpec& spec : best)
    if (std::ranges::any_of(other, [&](const OwnedSpec& theirs) { return theirs.digest() == spec.digest(); }))
      common.push_back(spec);
  return common;
}

}  // namespace anyattn::selector
