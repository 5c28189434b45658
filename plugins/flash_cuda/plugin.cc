// SPDX-License-Identifier: Apache-2.0
// The plugin's entry.
#include "anyattn/plugin.hpp"

#include "attn.h"

namespace {

// kernels: sm80 leaves the Hopper families out, to compare them or to get round one.
// cascade: always takes the pass over a shared prefix whatever the model says, to compare or to test it.
constexpr anyattn_option_info kOptions[] = {{ANYATTN_OPTION_INFO_SIZE, 0, "kernels", "auto", "auto | sm80"},
                                            {ANYATTN_OPTION_INFO_SIZE, 0, "cascade", "auto", "auto | off | always"}};
constexpr anyattn::PluginInfo kInfo{"org.anyattn.flash.cuda", "AnyAttn", ANYATTN_FLASH_VERSION, "Apache-2.0", kOptions, 2};

}  // namespace

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  return anyattn::PluginTable<kInfo, anyattn::flash::FlashAttn>::enter(host_abi_min, host_abi_max, plugin, error);
}
