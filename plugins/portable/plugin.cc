// SPDX-License-Identifier: Apache-2.0
// The plugin's entry: one file a target, from the same text.
#include "anyattn/plugin.hpp"

#include "attn.h"

namespace anyattn::portable {
namespace {

constexpr PluginInfo kInfo{"org.anyattn.portable." ANYATTN_PORTABLE_TARGET, "AnyAttn", ANYATTN_PORTABLE_VERSION, "Apache-2.0"};

}  // namespace
}  // namespace anyattn::portable

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  using anyattn::portable::PortableAttn;
  return anyattn::PluginTable<anyattn::portable::kInfo, PortableAttn>::enter(host_abi_min, host_abi_max, plugin, error);
}
