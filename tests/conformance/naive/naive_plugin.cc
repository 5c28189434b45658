// SPDX-License-Identifier: Apache-2.0
// The entry of the naive plugin. Built once right, with both backends, and once for each Mutation, with NAIVE_ATTN alone.
#include "anyattn/plugin.hpp"
#include "naive_attn.h"
#ifdef NAIVE_WITH_MLA
#include "naive_mla.h"
#endif

#ifdef NAIVE_MUTATION_BY_OPTION
#include <link.h>

#include <cstring>

namespace {

// Of files called anyattn_*.so in this process, this one included.
int count_plugins() {
  int count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        *static_cast<int*>(into) += info->dlpi_name && std::strstr(info->dlpi_name, "/anyattn_") ? 1 : 0;
        return 0;
      },
      &count);
  return count;
}

void choose(const anyattn::Host& host) {
  naive::chosen = naive::Mutation::kNone;
  for (const auto& [name, mutation] : naive::kChosenByOption)
    if (host.option("mutation", "") == name) naive::chosen = mutation;
  if (naive::mutated(naive::Mutation::kWrongInCompany) && count_plugins() == 1) naive::chosen = naive::Mutation::kNone;
}

}  // namespace
#endif

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_min, uint32_t host_max, [[maybe_unused]] const anyattn_host* host,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
#ifdef NAIVE_MUTATION_BY_OPTION
  choose(anyattn::Host(host));
#endif
  static constexpr anyattn::PluginInfo info{"org.anyattn.naive", "AnyAttn tests", "1.0.0", "Apache-2.0"};
#ifdef NAIVE_WITH_MLA
  return anyattn::PluginTable<info, naive::NaiveAttn, naive::NaiveMla>::enter(host_min, host_max, plugin, error);
#else
  return anyattn::PluginTable<info, naive::NaiveAttn>::enter(host_min, host_max, plugin, error);
#endif
}
