// SPDX-License-Identifier: Apache-2.0
// From files to a registry: what discovery finds and the loader opens, in the registry's words. Included by the runtime only.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "config/config.h"
#include "discovery/discovery.h"
#include "loader/host_services.h"
#include "loader/loader.h"
#include "registry/registry.h"

namespace anyattn::api {

class PluginSource {
 public:
  // Discovers and registers. Both arguments outlive it. Throws StatusError where a required plugin does not load.
  PluginSource(const config::Config& config, const loader::HostServices& services);

  registry::Registry& registry() { return registry_; }

 private:
  registry::Candidate remember(const discovery::Candidate& found);
  std::shared_ptr<const registry::OpenPlugin> open(const registry::Candidate& candidate);
  registry::Candidate inspect(const std::string& path);

  const config::Config& config_;
  const discovery::Host host_;
  loader::Loader loader_;
  std::mutex mutex_;
  std::map<std::string, discovery::Candidate> found_;  // by path
  registry::Registry registry_;
};

}  // namespace anyattn::api
