// SPDX-License-Identifier: Apache-2.0
// From files to a registry: what discovery finds and the loader opens, in the registry's words. Included by the runtime only.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "config/config.h"
#include "discovery/discovery.h"
#include "discovery/seen_files.h"
#include "inspect/libraries.h"
#include "loader/host_services.h"
#include "loader/loader.h"
#include "probe/prober.h"
#include "registry/registry.h"

namespace anyattn::api {

class PluginSource {
 public:
  // Discovers and registers. Both arguments outlive it. Throws StatusError where a required plugin does not load.
  // generation: where the registry's count begins.
  PluginSource(const config::Config& config, const loader::HostServices& services, uint64_t generation = 1);

  registry::Registry& registry() { return registry_; }
  // Opens what there is now of a plugin that was open before, known by its id or its file. Nothing where the configuration has
  // it no more; throws StatusError where it is there and does not open.
  void require_still_opens(const std::string& id, const std::string& path);
  probe::Prober& prober() { return prober_; }

 private:
  registry::Candidate remember(const discovery::Candidate& found);
  std::shared_ptr<const registry::OpenPlugin> open(const registry::Candidate& candidate);
  registry::Candidate inspect(const std::string& path);

  const config::Config& config_;
  inspect::LibrarySearch libraries_;
  discovery::SeenFiles seen_;
  const discovery::Host host_;
  probe::Prober prober_;
  loader::Loader loader_;
  std::mutex mutex_;
  std::map<std::string, discovery::Candidate> found_;  // by path
  registry::Registry registry_;
};

}  // namespace anyattn::api
