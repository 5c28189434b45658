// SPDX-License-Identifier: Apache-2.0
#include "probe/prober.h"

#include <fmt/format.h>

#include <chrono>

#include "log/log.h"
#include "probe/child.h"
#include "probe/fingerprint.h"

namespace anyattn::probe {
namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

bool has_expired(const Verdict& verdict) {
  const int64_t age = now() - verdict.when;
  return verdict.transient && (age < 0 || age > Prober::kTransientSeconds);
}

Prober::Prober(ProberOptions options) : options_(std::move(options)), cache_(options_.cache_folder) {}

std::string Prober::key_of(const Subject& subject) const {
  std::vector<std::string> lines = machine_facts(options_.helper);
  lines.push_back(subject.content);
  for (const auto& [key, value] : subject.options) {
    lines.push_back(key);
    lines.push_back(value);
  }
  for (const std::string& library : subject.libraries) lines.push_back(file_facts(library));
  return digest(lines);
}

Verdict Prober::verdict(const Subject& subject) {
  const std::string key = key_of(subject);
  std::shared_ptr<std::mutex> asking;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<std::mutex>& mutex = asking_[key];
    if (!mutex) mutex = std::make_shared<std::mutex>();
    asking = mutex;
  }
  const std::lock_guard one_asker(*asking);
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end() && !has_expired(known->second)) return known->second;
  }
  std::optional<Verdict> verdict = cache_.find(key);
  // The child must have seen this very content; a stored text for another is none of ours.
  const bool is_warm = verdict && verdict->content == subject.content && !has_expired(*verdict);
  if (!is_warm) {
    verdict = ask_child(options_.helper, {subject.path, subject.content, subject.options, options_.timeout_ms});
    if (verdict->id.empty()) verdict->id = subject.id;
    verdict->path = subject.path;
    verdict->content = subject.content;
    verdict->when = now();
    for (const std::string& note : verdict->notes) log::warning(fmt::format("plugin {}: loading it {}", subject.path, note));
    if (verdict->outcome != Outcome::kNoProbe && !options_.cache_folder.empty()) {
      const std::string mistake = cache_.keep(key, *verdict);
      if (!mistake.empty()) log::debug(fmt::format("probe: the verdict on {} is not kept: {}", subject.path, mistake));
    }
  }
  const std::lock_guard lock(mutex_);
  if (verdict->outcome != Outcome::kNoProbe) known_.insert_or_assign(key, *verdict);
  return *verdict;
}

uint64_t Prober::forget(const std::string& which) {
  uint64_t count = 0;
  for (const VerdictCache::Kept& kept : cache_.all()) {
    if (!which.empty() && kept.verdict.id != which && kept.verdict.path != which) continue;
    cache_.forget(kept.key);
    ++count;
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(known_,
                [&](const auto& entry) { return which.empty() || entry.second.id == which || entry.second.path == which; });
  return count;
}

}  // namespace anyattn::probe
