// SPDX-License-Identifier: Apache-2.0
#include "selector/decision_cache.h"

#include <fmt/format.h>

#include "config/names.h"
#include "log/log.h"
#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

// Every fact a backend may look at.
std::string device_key(const anyattn_device_facts& d) {
  return fmt::format("{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}", d.device_kind, d.ordinal, d.arch_major, d.arch_minor,
                     d.num_multiprocessors, d.warp_size, d.shared_memory_per_block, d.memory_bytes, d.l2_bytes, d.features,
                     d.driver_version, d.runtime_version, d.compiler_version, d.architecture ? d.architecture : "");
}

void log_decision(const Decision& decision) {
  for (const Choice& choice : decision.choices) {
    std::string line =
        fmt::format("selection: {} ({}) on {}, phase {}, by {}", choice.backend.key.name, choice.backend.plugin->id,
                    config::device_kind_name(decision.device_kind), phase_name(choice.phase), decision.origin);
    if (decision.problem.is_paged())
      line += fmt::format(", block_size {} ({}'s)", decision.problem.block_size(), decision.block_size_origin);
    log::info(line + ": " + describe(decision.problem.view()));
  }
}

}  // namespace

std::shared_ptr<const Decision> DecisionCache::select(const Request& request, const config::Config& config,
                                                      registry::Registry& registry) {
  if (request.ask_all || !request.device || !validate_problem(request.problem).empty())
    return std::make_shared<const Decision>(selector::select(request, config, registry));

  std::string key = OwnedProblem(*request.problem).key() + '\n' + device_key(*request.device) + '\n' + request.backend;
  if (request.quarantine) key += fmt::format("\n{}", request.quarantine->version());
  for (const anyattn_device_facts* device : request.fallback_devices) key += '\n' + device_key(*device);
  const uint64_t now = registry.generation();
  {
    const std::lock_guard lock(mutex_);
    if (generation_ != now) decisions_.clear();  // lets plugins go that only old decisions held
    generation_ = now;
    if (const auto found = decisions_.find(key); found != decisions_.end()) return found->second;
  }

  auto decision = std::make_shared<const Decision>(selector::select(request, config, registry));
  if (!decision->ok()) return decision;
  const std::lock_guard lock(mutex_);
  // Opening a plugin that fails makes a new generation on the way: what was decided then is decided again next time.
  if (decision->generation != generation_ || registry.generation() != generation_) return decision;
  const auto [kept, is_new] = decisions_.emplace(std::move(key), decision);
  if (is_new) log_decision(*decision);
  return kept->second;
}

size_t DecisionCache::size() const {
  const std::lock_guard lock(mutex_);
  return decisions_.size();
}

}  // namespace anyattn::selector
