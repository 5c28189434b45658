// SPDX-License-Identifier: Apache-2.0
#include "api/runtime_object.h"

#include "api/library_path.h"
#include "config/names.h"
#include "config/read.h"
#include "device/cpu_facts.h"
#include "device/status_error.h"
#include "log/log.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

// More is a mistake in a number, not a machine.
constexpr uint32_t kMaxThreads = 4096;

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

Runtime::Runtime(const anyattn_runtime_options& options)
    : config_(load_config(options)),
      pool_(thread_count(options.num_threads)),
      services_(services_of(pool_)),
      cpu_host_(cpu_host_of(services_)),
      devices_(&cpu_host_),
      source_(config_, services_) {}

// Devices keeps the first provider of a kind; asking twice is harmless.
void Runtime::load_provider(uint32_t kind) {
  if (devices_.provider(kind)) return;
  registry::Registry::AcquiredProvider acquired = registry().acquire_provider(kind);
  if (acquired.provider) {
    const registry::OpenProvider& provider = *acquired.provider;
    devices_.add(provider.table, provider.host, provider.plugin, provider.plugin->id);
  } else if (acquired.failure) {
    devices_.explain_missing(kind, registry::describe(*acquired.failure));
  }
}

device::Devices& Runtime::devices() {
  for (const uint32_t kind : registry().provider_kinds()) load_provider(kind);
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
  selector::Request request;
  request.problem = problem;
  request.device = &devices_.facts(resolve(device));
  request.backend = backend;
  request.ask_all = ask_all;
  // A device that the caller named is a must.
  if (device == "auto") {
    for (const std::string& name : config_.allow_fallback) {
      const auto kind = config::device_kind_from_name(name);
      if (!kind || *kind == request.device->device_kind) continue;
      load_provider(*kind);
      const device::DeviceId id{*kind, 0};
      if (devices_.is_present(id)) request.fallback_devices.push_back(&devices_.facts(id));
    }
  }
  return decisions_.select(request, config_, registry());
}

}  // namespace anyattn::api
