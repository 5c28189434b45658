// SPDX-License-Identifier: Apache-2.0
#include "helper/trial.h"

#include <utility>

#include "device/cpu_facts.h"
#include "discovery/discovery.h"
#include "helper/hygiene.h"
#include "loader/call.h"
#include "loader/loader.h"

namespace anyattn::helper {
namespace {

void drop_line(void*, int32_t, const char*) {}

int32_t run_serially(void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) {
  if (!fn) return ANYATTN_INVALID_ARGUMENT;
  if (count > 0) fn(argument, 0, count, 0);
  return ANYATTN_OK;
}

// A first real question: whoever compiled for another processor often dies here and not before.
void ask_supports(const loader::Plugin& plugin) {
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_q_heads = problem.num_kv_heads = 8;
  problem.head_size = problem.head_size_v = 64;
  problem.q_dtype = problem.out_dtype = ANYATTN_DTYPE_FLOAT32;
  problem.kv_cache_dtype = "float32";
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = ANYATTN_DEVICE_CPU;
  facts.num_multiprocessors = device::cpu_facts().num_cores;
  facts.warp_size = 1;
  facts.architecture = "cpu";
  facts.name = "cpu";
  const anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, nullptr, [](void*, const anyattn_reason*) {}};
  for (const loader::Backend& backend : plugin.backends) {
    if (backend.device_kind != ANYATTN_DEVICE_CPU) continue;
    anyattn_support_report report{};
    report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
    // Whatever it answers is fine; that it answers is the point.
    loader::call({backend.name.c_str(), "supports"}, nullptr, backend.table.supports, plugin.host(), &facts, &problem, &sink,
                 &report);
  }
}

// The engine may do better soon: memory, a device in use, a file that is being replaced.
bool is_transient(int32_t status) {
  return status == ANYATTN_MEMORY_NOT_NOW || status == ANYATTN_OUT_OF_MEMORY || status == ANYATTN_DEVICE_ERROR ||
         status == ANYATTN_DEVICE_LOST || status == ANYATTN_INTERNAL;
}

}  // namespace

probe::Verdict try_plugin(const probe::Question& question, const std::function<void(const std::string&)>& on_stage) {
  discovery::Candidate candidate;
  candidate.path = question.path;
  candidate.content = question.content;
  config::PluginEntry entry;
  for (const auto& [key, value] : question.options) entry.options.push_back({key, value, {}});
  candidate.entry = entry;

  loader::HostServices services;
  services.log = drop_line;
  services.parallel_for = run_serially;
  services.cpu = &device::cpu_facts();
  const ProcessState before = process_state();
  loader::Loader loader(services, {}, [&](discovery::Stage stage) { on_stage(discovery::stage_name(stage)); });
  const loader::Opened opened = loader.open(candidate);
  probe::Verdict verdict;
  if (opened.failure) {
    const discovery::Skip& skip = *opened.failure;
    verdict.outcome = probe::Outcome::kRefused;
    verdict.stage = discovery::stage_name(skip.stage);
    verdict.status = skip.status;
    verdict.reason = skip.reason;
    verdict.remedy = skip.remedy;
    verdict.transient = is_transient(skip.status);
    verdict.id = skip.plugin;
    return verdict;
  }
  on_stage(discovery::stage_name(discovery::Stage::kSupports));
  ask_supports(*opened.plugin);
  verdict.outcome = probe::Outcome::kOk;
  verdict.id = opened.plugin->id;
  verdict.notes = changes(before, process_state());
  return verdict;
}

}  // namespace anyattn::helper
