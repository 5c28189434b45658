// SPDX-License-Identifier: Apache-2.0
// A runtime as the API's functions share it: configuration, threads, plugins, devices, scratch. Included by core/api only.
// Groups hold it too, so that destroying the handle early is no crash.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "anyattn/runtime.h"
#include "api/plugin_source.h"
#include "config/config.h"
#include "device/devices.h"
#include "device/thread_pool.h"
#include "loader/host_services.h"
#include "memory/scratch.h"
#include "registry/registry.h"
#include "selector/decision_cache.h"

namespace anyattn::api {

class Runtime {
 public:
  // Throws ConfigError for a mistake in the file, StatusError for a required plugin that does not load.
  explicit Runtime(const anyattn_runtime_options& options);

  const config::Config& config() const { return config_; }
  registry::Registry& registry() { return source_.registry(); }
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

  const config::Config config_;
  device::ThreadPool pool_;
  const loader::HostServices services_;
  const anyattn_host cpu_host_;
  device::Devices devices_;
  PluginSource source_;
  selector::DecisionCache decisions_;

  std::mutex mutex_;  // guards what follows
  std::map<std::pair<uint32_t, int32_t>, std::unique_ptr<memory::Scratch>> scratch_;
  bool memory_locked_ = false;
};

}  // namespace anyattn::api

struct anyattn_runtime {
  std::shared_ptr<anyattn::api::Runtime> object;
};
