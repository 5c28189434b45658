// SPDX-License-Identifier: Apache-2.0
#include "api/runtime_object.h"

#include <algorithm>

#include "api/library_path.h"
#include "config/names.h"
#include "config/read.h"
#include "config/tighten.h"
#include "device/cpu_facts.h"
#include "device/status_error.h"
#include "log/log.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

// More is a mistake in a number, not a machine.
constexpr uint32_t kMaxThreads = 4096;

uint32_t thread_count(uint32_t wanted) {
  if (wanted > kMaxThreads) {
    throw StatusError(ANYATTN_INVALID_ARGUMENT, "runtime: num_threads is " + std::to_string(wanted) + "; allowed: 0 to " +
                                                    std::to_string(kMaxThreads) +
                                                    ", 0 means the cores this process may run on");
  }
  return wanted != 0 ? wanted : device::cpu_facts().num_cores;
}

void log_of_plugin(void*, int32_t level, const char* text) { log::write_plugin(level, text); }

int32_t parallel_for(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) {
  return static_cast<device::ThreadPool*>(context)->parallel_for(count, grain, fn, argument);
}

loader::HostServices services_of(device::ThreadPool& pool) {
  loader::HostServices services;
  services.context = &pool;
  services.log = log_of_plugin;
  services.parallel_for = parallel_for;
  services.num_workers = pool.num_workers();
  services.cpu = &device::cpu_facts();
  return services;
}

// What the built-in provider is called with.
anyattn_host cpu_host_of(const loader::HostServices& services) {
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  host.abi_version = ANYATTN_ABI_VERSION_CURRENT;
  host.context = services.context;
  host.log = services.log;
  host.parallel_for = services.parallel_for;
  host.num_workers = services.num_workers;
  host.cpu = services.cpu;
  return host;
}

}  // namespace

config::Config load_config(const anyattn_runtime_options& options) {
  config::LoadOptions load;
  if (options.config_path) load.config_path = options.config_path;
  if (options.backend) load.backend = options.backend;
  if (options.log_level) load.log_level = options.log_level;
  load.default_config_path = installed_file("default.yaml");
  load.rule_fields = selector::rule_field_names();
  config::Config config = config::load(load);
  if (const auto level = log::level_from_name(config.log_level)) log::set_level(*level);
  for (const std::string& warning : config.warnings) log::warning(warning);
  const std::string mistake = selector::check_policy(config);
  if (!mistake.empty()) throw config::ConfigError(mistake);
  return config;
}

Runtime::Runtime(const anyattn_runtime_options& options)
    : options_(options),
      config_path_(options.config_path ? options.config_path : ""),
      backend_(options.backend ? options.backend : ""),
      log_level_(options.log_level ? options.log_level : ""),
      pool_(thread_count(options.num_threads)),
      services_(services_of(pool_)),
      cpu_host_(cpu_host_of(services_)),
      devices_(&cpu_host_),
      generation_(std::make_shared<Generation>(load_config(options), services_, 1)) {}

std::shared_ptr<Generation> Runtime::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

std::shared_ptr<const config::Config> Runtime::config() const {
  const std::shared_ptr<Generation> current = generation();
  return {current, &current->config};
}

std::shared_ptr<registry::Registry> Runtime::registry() const {
  const std::shared_ptr<Generation> current = generation();
  return {current, &current->source.registry()};
}

void Runtime::reload() {
  const std::lock_guard one(reloading_);
  const std::shared_ptr<Generation> before = generation();
  anyattn_runtime_options options = options_;
  options.config_path = options_.config_path ? config_path_.c_str() : nullptr;
  options.backend = options_.backend ? backend_.c_str() : nullptr;
  options.log_level = options_.log_level ? log_level_.c_str() : nullptr;
  config::Config changed = load_config(options);
  const std::string loosened = config::loosened(before->config, changed);
  if (!loosened.empty()) throw config::ConfigError(loosened);
  const auto next = std::make_shared<Generation>(std::move(changed), services_, before->source.registry().generation() + 1);
  const std::vector<std::shared_ptr<const registry::OpenPlugin>> open = before->source.registry().open_plugins();
  for (const registry::Snapshot::Plugin& plugin : before->source.registry().snapshot().plugins)
    if (plugin.state != registry::State::kListed) next->source.require_still_opens(plugin.id, plugin.path);

  const std::string line =
      "runtime: generation " + std::to_string(next->source.registry().generation()) + " of " + next->config.file;

  // On the side, then in one step: what fails here leaves the old generation as it was.
  const std::lock_guard lock(mutex_);
  auto draining = draining_;
  auto first_of_content = first_of_content_;
  std::erase_if(draining, [](const Draining& old) { return old.plugin.expired(); });
  for (const auto& plugin : open) {
    first_of_content.try_emplace(plugin->content, plugin->loaded);
    draining.push_back({plugin->id, plugin->version, plugin->license, plugin->vendor, plugin->path, plugin->content, plugin});
  }
  draining_.swap(draining);
  first_of_content_.swap(first_of_content);
  generation_ = next;
  log::info(line);
}

// Those of contents that the current generation has open too are in use as a matter of course.
std::vector<Draining> Runtime::draining() const {
  const std::lock_guard lock(mutex_);
  std::vector<Draining> found;
  const auto current = generation_->source.registry().open_plugins();
  for (const Draining& old : draining_) {
    const bool is_current = std::ranges::any_of(current, [&](const auto& plugin) { return plugin->content == old.content; });
    const bool is_listed = std::ranges::any_of(found, [&](const Draining& other) { return other.content == old.content; });
    if (!is_current && !is_listed && !old.plugin.expired()) found.push_back(old);
  }
  return found;
}

// Devices keeps the first provider of a kind; asking twice is harmless.
void Runtime::load_provider(uint32_t kind) {
  if (devices_.provider(kind)) return;
  registry::Registry::AcquiredProvider acquired = registry()->acquire_provider(kind);
  if (acquired.provider) {
    const registry::OpenProvider& provider = *acquired.provider;
    devices_.add(provider.table, provider.host, provider.plugin, provider.plugin->id);
  } else if (acquired.failure) {
    devices_.explain_missing(kind, registry::describe(*acquired.failure));
  }
}

device::Devices& Runtime::devices() {
  for (const uint32_t kind : registry()->provider_kinds()) load_provider(kind);
  return devices_;
}

device::DeviceId Runtime::resolve(const std::string& text) {
  if (text == "auto") return devices().resolve(text);
  if (const auto kind = config::device_kind_from_name(text.substr(0, text.find(':')))) load_provider(*kind);
  return devices_.resolve(text);
}

const anyattn_device_provider& Runtime::provider(device::DeviceId id) {
  load_provider(id.kind);
  return devices_.require(id);
}

memory::Scratch& Runtime::scratch(device::DeviceId id) {
  const anyattn_device_provider& table = provider(id);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<memory::Scratch>& scratch = scratch_[{id.kind, id.ordinal}];
  if (!scratch) {
    scratch = std::make_unique<memory::Scratch>(table, id, [](const std::string& line) { log::info(line); });
    if (memory_locked_) scratch->lock();
  }
  return *scratch;
}

void Runtime::lock_memory() {
  const std::lock_guard lock(mutex_);
  memory_locked_ = true;
  for (auto& [id, scratch] : scratch_) scratch->lock();
}

std::shared_ptr<const selector::Decision> Runtime::select(const anyattn_problem* problem, const std::string& device,
                                                          const std::string& backend, bool ask_all) {
  const std::shared_ptr<Generation> current = generation();
  selector::Request request;
  request.problem = problem;
  request.device = &devices_.facts(resolve(device));
  request.backend = backend;
  request.quarantine = &current->quarantine;
  if (current->profile) request.profile = &*current->profile;
  // What is compared with a lock has all reasons in it, as what was written down.
  const bool is_locked = !ask_all && current->lock.is_set();
  request.ask_all = ask_all || is_locked;
  // A device that the caller named is a must.
  if (device == "auto") {
    for (const std::string& name : current->config.allow_fallback) {
      const auto kind = config::device_kind_from_name(name);
      if (!kind || *kind == request.device->device_kind) continue;
      load_provider(*kind);
      const device::DeviceId id{*kind, 0};
      if (devices_.is_present(id)) request.fallback_devices.push_back(&devices_.facts(id));
    }
  }
  std::shared_ptr<const selector::Decision> decision =
      current->decisions.select(request, current->config, current->source.registry());
  if (!decision->profile.stale.empty() && !current->stale_profile_is_said.exchange(true))
    log::warning("selection.profile " + decision->profile.file + " is ignored: " + decision->profile.stale +
                 "; 'anyattn tune' writes it anew");
  if (is_locked && decision->ok()) current->lock.require_same(*decision);
  return decision;
}

}  // namespace anyattn::api
