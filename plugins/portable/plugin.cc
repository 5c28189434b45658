// SPDX-License-Identifier: Apache-2.0
// The plugin's entry: one file a target, from the same text.
#include "anyattn/plugin.hpp"

#include <iterator>

#include "attn.h"
#include "mla.h"

namespace anyattn::portable {
namespace {

// tiles: another cut of the problem than the one chosen, counted per problem (alternatives.h). The rest is for what compiles at run
// time. cache: the folder of compiled kernels. compiler: off takes what lies there, or beside the plugin in `prebuilt`, and compiles
// nothing. warmup: compile fills the folder and loads nothing, for a device that is not here. products: scalar computes 16-bit
// tiles without matrix instructions, as targets that have none do. unproven: allow takes a device that nothing has run on.
constexpr anyattn_option_info kOptions[] = {{ANYATTN_OPTION_INFO_SIZE, 0, "tiles", "auto", "auto | 0, 1, ..."},
#if ANYATTN_PORTABLE_COMPILES
                                            {ANYATTN_OPTION_INFO_SIZE, 0, "cache", "auto", "auto | off | a folder"},
                                            {ANYATTN_OPTION_INFO_SIZE, 0, "compiler", "auto", "auto | off"},
                                            {ANYATTN_OPTION_INFO_SIZE, 0, "warmup", "load", "load | compile"},
                                            {ANYATTN_OPTION_INFO_SIZE, 0, "products", "auto", "auto | scalar"},
                                            {ANYATTN_OPTION_INFO_SIZE, 0, "unproven", "refuse", "refuse | allow"}
#endif
};
constexpr PluginInfo kInfo{"org.anyattn.portable." ANYATTN_PORTABLE_TARGET,
                           "AnyAttn",
                           ANYATTN_PORTABLE_VERSION,
                           "Apache-2.0",
                           kOptions,
                           std::size(kOptions)};

}  // namespace
}  // namespace anyattn::portable

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  using anyattn::portable::PortableAttn;
  using anyattn::portable::PortableMla;
  return anyattn::PluginTable<anyattn::portable::kInfo, PortableAttn, PortableMla>::enter(host_abi_min, host_abi_max, plugin,
                                                                                          error);
}
