// SPDX-License-Identifier: Apache-2.0
// A runtime as the API's functions share it: configuration, threads, plugins, devices, scratch. Included by core/api only.
// Groups hold it too, so that destroying the handle early is no crash.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "anyattn/runtime.h"
#include "api/plugin_source.h"
#include "api/selection_lock.h"
#include "config/config.h"
#include "config/profile.h"
#include "device/devices.h"
#include "device/thread_pool.h"
#include "loader/host_services.h"
#include "memory/scratch.h"
#include "registry/registry.h"
#include "selector/decision_cache.h"

namespace anyattn::api {

// The file that these options name, read and checked; sets the log level. Throws ConfigError.
config::Config load_config(const anyattn_runtime_options& options);

// What one reading of the configuration gave. Replaced whole by a reload; whoever holds it, or something made of it, keeps it.
struct Generation {
  Generation(config::Config read, const loader::HostServices& services, uint64_t number)
      : config(std::move(read)),
        lock(config.lock.empty() ? SelectionLock() : SelectionLock(config.lock)),
        profile(config.profile.empty() ? std::nullopt : std::optional(config::read_profile(config.profile))),
        source(config, services, number) {}
  const config::Config config;
  const SelectionLock lock;
  const std::optional<config::Profile> profile;
  std::atomic<bool> stale_profile_is_said{false};
  PluginSource source;
  selector::DecisionCache decisions;
  selector::Quarantine quarantine;
};

// A plugin of an earlier generation that something made from it still uses.
struct Draining {
  std::string id, version, license, vendor, path, content;
  std::weak_ptr<const registry::OpenPlugin> plugin;
};

class Runtime {
 public:
  // Throws ConfigError for a mistake in the file, StatusError for a required plugin that does not load.
  explicit Runtime(const anyattn_runtime_options& options);

  // Each holds the generation it is of, whatever a reload does meanwhile.
  std::shared_ptr<Generation> generation() const;
  std::shared_ptr<const config::Config> config() const;
  std::shared_ptr<registry::Registry> registry() const;
  // Reads the configuration again and takes what it says from here on; where it does not load, or a plugin that is open now does
  // not open any more, throws and changes nothing. Impls that are there keep their plugin.
  void reload();
  std::vector<Draining> draining() const;
  device::ThreadPool& pool() { return pool_; }

  // As Devices::resolve; opens the plugins that bring the kinds asked about, at first need.
  device::DeviceId resolve(const std::string& text);
  // Devices with the providers of every plugin.
  device::Devices& devices();
  const anyattn_device_provider& provider(device::DeviceId id);
  const anyattn_device_facts& facts(device::DeviceId id) const { return devices_.facts(id); }
  memory::Scratch& scratch(device::DeviceId id);
  // No scratch grows from here on, on any device.
  void lock_memory();

  // backend: a must, empty = the policy decides. The decision may be a failure.
  std::shared_ptr<const selector::Decision> select(const anyattn_problem* problem, const std::string& device,
                                                   const std::string& backend, bool ask_all);

 private:
  void load_provider(uint32_t kind);

  const anyattn_runtime_options options_;  // its texts are below
  const std::string config_path_, backend_, log_level_;
  device::ThreadPool pool_;
  const loader::HostServices services_;
  const anyattn_host cpu_host_;
  device::Devices devices_;
  std::mutex reloading_;  // one reload at a time

  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Generation> generation_;
  std::vector<Draining> draining_;
  std::map<std::string, std::shared_ptr<const void>>
      first_of_content_;  // so that no file hears "the last runtime closed" early
  std::map<std::pair<uint32_t, int32_t>, std::unique_ptr<memory::Scratch>> scratch_;
  bool memory_locked_ = false;
};

}  // namespace anyattn::api

struct anyattn_runtime {
  std::shared_ptr<anyattn::api::Runtime> object;
};
