// SPDX-License-Identifier: Apache-2.0
// Negotiates a version with an entry function and reads the plugin's tables, of any age, into copies of our own.
// Included inside core/loader only. Compares nothing with sidecar or configuration.
#pragma once

#include <string>
#include <vector>

#include "anyattn/plugin.h"
#include "loader/loader.h"
#include "loader/plugin.h"

namespace anyattn::loader {

struct Tables {
  std::string id, vendor, version, license;
  uint32_t abi_version = 0, abi_min = 0, abi_max = 0;
  std::vector<Backend> backends;
  std::vector<Provider> providers;
  std::vector<OptionInfo> options;
  void (*shutdown)(void) = nullptr;
};

// Calls the entry and checks everything that can be checked without calling another function. Throws Refusal.
Tables negotiate(anyattn_plugin_entry_fn entry, AbiRange range, const anyattn_host& host);

}  // namespace anyattn::loader
