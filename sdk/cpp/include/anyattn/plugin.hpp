// SPDX-License-Identifier: Apache-2.0
// The plugin's entry from a list of backend classes, and of device providers. Included by the one file of a plugin that defines the entry:
//
//   extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_min, uint32_t host_max, const anyattn_host*,
//                                              const anyattn_plugin** plugin, anyattn_error* error) {
//     static constexpr anyattn::PluginInfo info{"com.acme.attn", "Acme", "1.0.0", "MIT"};
//     return anyattn::PluginTable<info, MyBackend>::enter(host_min, host_max, plugin, error);
//   }
#pragma once

#include <array>
#include <cstdint>

#include "anyattn/backend.hpp"
#include "anyattn/plugin.h"

namespace anyattn {

// Texts live as long as the process.
struct PluginInfo {
  const char* id;  // reverse domain name
  const char* vendor;
  const char* version;  // of the plugin
  const char* license;  // SPDX expression
  const anyattn_option_info* options = nullptr;
  uint32_t num_options = 0;
  const anyattn_device_provider* const* providers = nullptr;
  uint32_t num_providers = 0;
};

template <const PluginInfo& kInfo, class... Backends>
struct PluginTable {
  static constexpr uint32_t kMin = ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR_LOWEST);
  static constexpr uint32_t kMax = ANYATTN_ABI_VERSION_CURRENT;

  // Answers the highest version both sides speak. The table is constant, so there is one for each version.
  static int32_t enter(uint32_t host_min, uint32_t host_max, const anyattn_plugin** plugin, anyattn_error* error) noexcept {
    if (!plugin) return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: plugin is null", kInfo.id);
    const uint32_t version = host_max < kMax ? host_max : kMax;
    const bool meets = version >= kMin && version >= host_min;
    *plugin = &tables[meets ? version - kMin : kMax - kMin];
    if (meets) return ANYATTN_OK;
    return anyattn_error_set(error, ANYATTN_ABI_MISMATCH, "%s: speaks ABI %u.%u to %u.%u, the host %u.%u to %u.%u", kInfo.id,
                             kMin >> 16, kMin & 0xffffu, kMax >> 16, kMax & 0xffffu, host_min >> 16, host_min & 0xffffu,
                             host_max >> 16, host_max & 0xffffu);
  }

 private:
  // One slot where there is none: an array has an address.
  static constexpr std::array<const anyattn_backend*, sizeof...(Backends) + 1> kBackends{&BackendTable<Backends>::table...};

  static constexpr anyattn_plugin make(uint32_t version) {
    anyattn_plugin made{};
    made.struct_size = ANYATTN_PLUGIN_SIZE;
    made.abi_version = version;
    made.abi_min = kMin;
    made.abi_max = kMax;
    made.id = kInfo.id;
    made.vendor = kInfo.vendor;
    made.version = kInfo.version;
    made.license = kInfo.license;
    made.num_backends = sizeof...(Backends);
    made.backends = made.num_backends > 0 ? kBackends.data() : nullptr;
    made.num_providers = kInfo.num_providers;
    made.providers = kInfo.providers;
    made.num_options = kInfo.num_options;
    made.option_stride = sizeof(anyattn_option_info);
    made.options = kInfo.options;
    return made;
  }
  static constexpr std::array<anyattn_plugin, kMax - kMin + 1> make_all() {
    std::array<anyattn_plugin, kMax - kMin + 1> all{};
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = make(kMin + i);
    return all;
  }
  static constexpr std::array<anyattn_plugin, kMax - kMin + 1> tables = make_all();
};

}  // namespace anyattn
