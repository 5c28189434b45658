// SPDX-License-Identifier: Apache-2.0
// The anyattn_host of one plugin: its own options, the runtime's services, its name before each line it logs.
// Included inside core/loader only.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "loader/host_services.h"

namespace anyattn::loader {

struct HostTable {
  // `name`: the plugin's id, or its path until the id is known.
  HostTable(const HostServices& services, std::string name, const std::vector<config::Option>& options, uint32_t abi_version);
  HostTable(const HostTable&) = delete;
  HostTable& operator=(const HostTable&) = delete;

  const HostServices services;
  const std::string name;
  const std::vector<config::Option> texts;
  std::vector<anyattn_option> options;  // point into texts
  anyattn_host host{};                  // points here
};

}  // namespace anyattn::loader
