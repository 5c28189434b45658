// SPDX-License-Identifier: Apache-2.0
#include "api/plugin_source.h"

#include "api/library_path.h"
#include "config/sidecar.h"
#include "device/status_error.h"
#include "log/log.h"
#include "probe/fingerprint.h"

namespace anyattn::api {
namespace {

registry::Failure failure_of(const discovery::Skip& skip) {
  registry::Failure failure;
  failure.stage = skip.stage;
  failure.status = skip.status;
  failure.plugin = skip.plugin;
  failure.path = skip.path;
  failure.reason = skip.reason;
  failure.remedy = skip.remedy;
  return failure;
}

// The names that a file turned away would have brought.
std::vector<registry::Key> names_of(const discovery::Skip& skip) {
  std::vector<registry::Key> names;
  if (!skip.sidecar) return names;
  for (const config::Sidecar::Backend& backend : skip.sidecar->backends) names.push_back({backend.name, backend.device_kind});
  return names;
}

registry::Candidate candidate_of(const discovery::Candidate& found) {
  registry::Candidate candidate;
  candidate.id = found.id;
  candidate.path = found.path;
  candidate.origin = found.origin;
  candidate.content = found.content;
  candidate.signed_by = found.signed_by;
  candidate.device_code = found.device_code;
  if (found.entry) {
    candidate.required = found.entry->required;
    candidate.options = found.entry->options;
  }
  if (!found.sidecar) return candidate;
  candidate.has_sidecar = true;
  candidate.vendor = found.sidecar->vendor;
  candidate.version = found.sidecar->version;
  candidate.license = found.sidecar->license;
  candidate.abi_min = found.sidecar->abi_min;
  candidate.abi_max = found.sidecar->abi_max;
  for (const config::Sidecar::Backend& backend : found.sidecar->backends) {
    candidate.backends.push_back({backend.name, backend.device_kind});
  }
  candidate.providers = found.sidecar->providers;
  return candidate;
}

std::shared_ptr<const registry::OpenPlugin> open_plugin_of(std::shared_ptr<loader::Plugin> plugin) {
  auto open = std::make_shared<registry::OpenPlugin>();
  open->id = plugin->id;
  open->vendor = plugin->vendor;
  open->version = plugin->version;
  open->license = plugin->license;
  open->path = plugin->path;
  open->abi_min = plugin->abi_min;
  open->abi_max = plugin->abi_max;
  open->abi_version = plugin->abi_version;
  open->content = plugin->content;
  for (const loader::Backend& backend : plugin->backends) open->backends.push_back(backend.table);
  for (const loader::Provider& provider : plugin->providers) open->providers.push_back(provider.table);
  open->host = plugin->host();
  open->loaded = std::move(plugin);
  return open;
}

}  // namespace

PluginSource::PluginSource(const config::Config& config, const loader::HostServices& services, uint64_t generation)
    : config_(config),
      libraries_({.library_path = config.library_path, .loaded = inspect::loaded_libraries()}),
      // Each installation has a probe program of its own.
      seen_(config.probe_cache.empty() ? verdict_folder() : config.probe_cache, probe::file_facts(probe_program())),
      host_{.cpu = services.cpu, .libraries = &libraries_, .seen = &seen_},
      prober_({probe_program(), config.probe_cache.empty() ? verdict_folder() : config.probe_cache, config.probe_timeout_ms}),
      loader_(services),
      registry_(
          config.override_owner, [this](const registry::Candidate& candidate) { return open(candidate); },
          [this](const std::string& path) { return inspect(path); }, generation) {
  loader_.copy_into(copy_folder(), config.max_contents);
  if (config.probe_enabled) loader_.probe_with(&prober_);
  const discovery::Found found = discovery::discover(config, host_);
  if (const std::string obstacle = seen_.save(); !obstacle.empty())
    log::debug("discovery: what was seen of plugin files is not kept: " + obstacle);
  for (const std::string& warning : found.warnings) log::warning(warning);
  for (const discovery::Skip& skip : found.skips) {
    if (skip.required) throw StatusError(skip.status, discovery::text(skip));
    const std::vector<uint32_t> none;
    registry_.add_failure(failure_of(skip), names_of(skip), skip.sidecar ? skip.sidecar->providers : none);
  }
  std::vector<registry::Candidate> candidates;
  candidates.reserve(found.candidates.size());
  for (const discovery::Candidate& candidate : found.candidates) candidates.push_back(remember(candidate));
  registry_.add(std::move(candidates));
}

void PluginSource::require_still_opens(const std::string& id, const std::string& path) {
  const registry::Snapshot now = registry_.snapshot();
  for (const registry::Failure& failure : now.skipped)
    if ((failure.plugin == id || failure.path == path) && failure.stage != registry::Stage::kDiscover)
      throw StatusError(failure.status, registry::describe(failure));
  for (const registry::Snapshot::Row& row : now.backends) {
    if (row.plugin != id) continue;
    const registry::Registry::Acquired acquired = registry_.acquire(row.key);
    if (acquired.failure) throw StatusError(acquired.failure->status, registry::describe(*acquired.failure));
    return;
  }
}

registry::Candidate PluginSource::remember(const discovery::Candidate& found) {
  const std::lock_guard lock(mutex_);
  found_.insert_or_assign(found.path, found);
  return candidate_of(found);
}

std::shared_ptr<const registry::OpenPlugin> PluginSource::open(const registry::Candidate& candidate) {
  discovery::Candidate found;
  {
    const std::lock_guard lock(mutex_);
    found = found_.at(candidate.path);
  }
  loader::Opened opened = loader_.open(found);
  if (!opened.plugin) throw registry::OpenError(failure_of(*opened.failure));
  return open_plugin_of(std::move(opened.plugin));
}

// A file named by a call at run time: looked at as if plugins.entries had named it.
registry::Candidate PluginSource::inspect(const std::string& path) {
  config::PluginEntry entry;
  entry.file = path;
  entry.origin.text = "call";
  const discovery::Found found = discovery::discover_file(entry, config_, host_);
  seen_.save();
  for (const std::string& warning : found.warnings) log::warning(warning);
  if (!found.candidates.empty()) return remember(found.candidates.front());
  registry::Failure failure;
  failure.stage = registry::Stage::kDiscover;
  failure.status = ANYATTN_NOT_FOUND;
  failure.path = path;
  failure.reason = "no plugin there";
  throw registry::OpenError(found.skips.empty() ? failure : failure_of(found.skips.front()));
}

}  // namespace anyattn::api
