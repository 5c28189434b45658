// SPDX-License-Identifier: Apache-2.0
// The plugin's entry: org.anyattn.cpu with CPU_ATTN and CPU_MLA.
#include "anyattn/plugin.hpp"

#include "attn.h"
#include "isa.h"
#include "mla.h"

namespace anyattn::cpu {
namespace {

constexpr anyattn_option_info kOptions[] = {{ANYATTN_OPTION_INFO_SIZE, 0, "isa", "auto", kIsaChoices}};
constexpr PluginInfo kInfo{"org.anyattn.cpu", "AnyAttn", ANYATTN_CPU_VERSION, "Apache-2.0", kOptions, 1};

}  // namespace
}  // namespace anyattn::cpu

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  using anyattn::cpu::CpuAttn;
  using anyattn::cpu::CpuMla;
  return anyattn::PluginTable<anyattn::cpu::kInfo, CpuAttn, CpuMla>::enter(host_abi_min, host_abi_max, plugin, error);
}
