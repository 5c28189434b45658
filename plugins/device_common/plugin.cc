// SPDX-License-Identifier: Apache-2.0
#include <anyattn/plugin.hpp>

#include "provider.h"
#include "vendor.h"

namespace {

constexpr const anyattn_device_provider* kProviders[] = {&anyattn::device::kProvider};
constexpr anyattn::PluginInfo kInfo{
    anyattn::device::kPluginId, "AnyAttn", ANYATTN_PLUGIN_VERSION, "Apache-2.0", nullptr, 0, kProviders, 1};

}  // namespace

int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* /*host*/,
                                const anyattn_plugin** plugin, anyattn_error* error) {
  return anyattn::PluginTable<kInfo>::enter(host_abi_min, host_abi_max, plugin, error);
}
