// SPDX-License-Identifier: Apache-2.0
// The good fake, compiled once for all fakes that differ in hooks.cc only: id, name, and code in entry, supports and forward.
#include "fake_plugins/hooks.h"

#define FAKE_ID fake_hooks::id
#define FAKE_NAME fake_hooks::name
#define FAKE_ENTRY fake_inner_entry
#include "fake_plugins/fake_plugin.cc"  // NOLINT(bugprone-suspicious-include): the same source, other definitions

namespace {

const anyattn_backend* inner = nullptr;  // set before anything is called through the copy

int32_t hooked_supports(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                        const anyattn_reason_sink* sink, anyattn_support_report* report, anyattn_error* error) {
  fake_hooks::in_supports(*problem);
  return inner->supports(host, facts, problem, sink, report, error);
}

// Every element of out is the fake's number.
int32_t hooked_forward(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_forward_args* args,
                       anyattn_error* error) {
  const anyattn_tensor& out = args->out;
  if (fake_hooks::number != 0 && out.data) {
    int64_t count = 1;
    for (int32_t i = 0; i < out.ndim; ++i) count *= out.shape[i];
    std::fill_n(static_cast<float*>(out.data), count, fake_hooks::number);
  }
  return inner->forward(impl, metadata, args, error);
}

}  // namespace

extern "C" ANYATTN_EXPORT int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max,
                                                          const anyattn_host* host, const anyattn_plugin** plugin,
                                                          anyattn_error* error) {
  static anyattn_backend backend;
  static const anyattn_backend* const backends[] = {&backend};
  static anyattn_plugin table;
  fake_hooks::in_entry();
  const int32_t status = fake_inner_entry(host_abi_min, host_abi_max, host, plugin, error);
  if (status != ANYATTN_OK) return status;
  static const bool is_made = [&] {
    inner = (*plugin)->backends[0];
    anyattn_read_struct(&backend, sizeof backend, inner);
    backend.supports = hooked_supports;
    backend.forward = hooked_forward;
    anyattn_read_struct(&table, sizeof table, *plugin);
    table.backends = backends;
    return true;
  }();
  (void)is_made;
  *plugin = &table;
  return ANYATTN_OK;
}
