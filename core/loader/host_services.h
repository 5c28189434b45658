// SPDX-License-Identifier: Apache-2.0
// What the core lends every plugin of one runtime. Filled in by the device part, read by the loader.
// Holds no option of a plugin: those differ per plugin and are added by the loader.
#pragma once

#include <cstdint>

#include "anyattn/host.h"

namespace anyattn::loader {

// All of it is borrowed and outlives every Plugin opened with it. Contracts as in anyattn_host.
struct HostServices {
  void* context = nullptr;  // first argument of the functions
  // One line of a plugin; `text` already names the plugin. Any thread.
  void (*log)(void* context, int32_t level, const char* text) = nullptr;
  int32_t (*parallel_for)(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) = nullptr;
  uint32_t num_workers = 1;
  const anyattn_cpu_facts* cpu = nullptr;
};

}  // namespace anyattn::loader
