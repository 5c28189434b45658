// SPDX-License-Identifier: Apache-2.0
#include <anyattn/plugin.h>
#include <anyattn/util.h>

#include "provider.h"
#include "vendor.h"

namespace {

const anyattn_device_provider* const kProviders[] = {&anyattn::device::kProvider};

const anyattn_plugin kPlugin = {
    .struct_size = ANYATTN_PLUGIN_SIZE,
    .abi_version = ANYATTN_ABI_VERSION_CURRENT,
    .abi_min = ANYATTN_ABI_VERSION_CURRENT,
    .abi_max = ANYATTN_ABI_VERSION_CURRENT,
    .id = anyattn::device::kPluginId,
    .vendor = "AnyAttn",
    .version = ANYATTN_PLUGIN_VERSION,
    .license = "Apache-2.0",
    .num_backends = 0,
    .num_providers = 1,
    .backends = nullptr,
    .providers = kProviders,
    .num_options = 0,
    .option_stride = 0,
    .options = nullptr,
    .shutdown = nullptr,
};

}  // namespace

int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* /*host*/,
                                const anyattn_plugin** plugin, anyattn_error* error) {
  *plugin = &kPlugin;
  if (kPlugin.abi_min > host_abi_max || kPlugin.abi_max < host_abi_min)
    return anyattn_error_set(
        error, ANYATTN_ABI_MISMATCH,
        "device provider %s: speaks ABI %u.%u to %u.%u, the host %u.%u to %u.%u; take the build for this host",
        anyattn::device::kDevice, kPlugin.abi_min >> 16, kPlugin.abi_min & 0xffff, kPlugin.abi_max >> 16,
        kPlugin.abi_max & 0xffff, host_abi_min >> 16, host_abi_min & 0xffff, host_abi_max >> 16, host_abi_max & 0xffff);
  return ANYATTN_OK;
}
