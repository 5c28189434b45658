// SPDX-License-Identifier: Apache-2.0
// The entry of the naive plugin. Built once right, with both backends, and once for each Mutation, with NAIVE_ATTN alone.
#include "anyattn/plugin.hpp"
#include "naive_attn.h"
#ifdef NAIVE_WITH_MLA
#include "naive_mla.h"
#endif

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_min, uint32_t host_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  static constexpr anyattn::PluginInfo info{"org.anyattn.naive", "AnyAttn tests", "1.0.0", "Apache-2.0"};
#ifdef NAIVE_WITH_MLA
  return anyattn::PluginTable<info, naive::NaiveAttn, naive::NaiveMla>::enter(host_min, host_max, plugin, error);
#else
  return anyattn::PluginTable<info, naive::NaiveAttn>::enter(host_min, host_max, plugin, error);
#endif
}
