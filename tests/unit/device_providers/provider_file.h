// SPDX-License-Identifier: Apache-2.0
// A provider's table out of its file, as a host of its own would get it. Included by the tests that call its slots.
#pragma once

#include <anyattn/plugin.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

struct Error {
  char text[512] = {};
  anyattn_error error{text, sizeof text, 0, 0, 0};
};

inline anyattn_host fake_host() {
  static const anyattn_cpu_facts cpu{ANYATTN_CPU_FACTS_SIZE, ANYATTN_CPU_ARCH_X86_64, 0, 1, 0, 0, 0};
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  host.abi_version = ANYATTN_ABI_VERSION_CURRENT;
  host.log = [](void*, int32_t, const char*) {};
  host.parallel_for = [](void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) -> int32_t {
    fn(argument, 0, count, 0);
    return ANYATTN_OK;
  };
  host.num_workers = 1;
  host.cpu = &cpu;
  return host;
}

inline const anyattn_host kHost = fake_host();

inline const anyattn_device_provider& provider() {
  static const anyattn_device_provider* const found = [] {
    void* library = dlopen(ANYATTN_PROVIDER_FILE, RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library, dlerror());
    const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
    REQUIRE(static_cast<bool>(entry));
    const anyattn_plugin* plugin = nullptr;
    REQUIRE(entry(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, &kHost, &plugin, nullptr) == ANYATTN_OK);
    REQUIRE(plugin->num_providers == 1);
    return plugin->providers[0];
  }();
  return *found;
}

// The number of devices; prints why there are none.
inline uint32_t devices() {
  Error why;
  uint32_t count = 99;
  REQUIRE(provider().enumerate(&kHost, &count, &why.error) == ANYATTN_OK);
  if (count == 0) MESSAGE("SKIPPED: ", why.text);
  return count;
}
