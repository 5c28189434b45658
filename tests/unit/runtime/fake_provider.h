// SPDX-License-Identifier: Apache-2.0
// A device provider over host memory that counts, fails and has graphs on demand. Included by tests of devices and memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "anyattn/device.h"
#include "anyattn/util.h"

namespace fake {

// What the provider does next; reset() before each case.
struct ProviderState {
  uint32_t num_devices = 2;
  int64_t live_blocks = 0;
  int64_t allocs = 0;
  int64_t fills = 0;
  uint64_t misalign = 0;  // bytes past the aligned address
  bool fail_alloc = false;
  const char* why_none = nullptr;
};
inline ProviderState& provider_state() {
  static ProviderState state;
  return state;
}
inline void reset_provider() { provider_state() = {}; }

// Space before a block: holds the malloc'ed address.
inline int32_t provider_alloc(int32_t, uint64_t bytes, void** memory, anyattn_error* error) {
  ProviderState& state = provider_state();
  if (state.fail_alloc) return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "fake: planted shortage");
  ++state.allocs;
  ++state.live_blocks;
  char* base = static_cast<char*>(std::aligned_alloc(256, (bytes + 1024) / 256 * 256));
  *memory = base + 256 + state.misalign;
  std::memcpy(static_cast<char*>(*memory) - sizeof base, &base, sizeof base);
  return ANYATTN_OK;
}

inline void provider_free(int32_t, void* memory) {
  if (!memory) return;
  --provider_state().live_blocks;
  char* base = nullptr;
  std::memcpy(&base, static_cast<char*>(memory) - sizeof base, sizeof base);
  std::free(base);
}

inline anyattn_device_provider provider(uint32_t kind, bool has_graphs) {
  anyattn_device_provider table{};
  table.struct_size = ANYATTN_DEVICE_PROVIDER_SIZE;
  table.device_kind = kind;
  table.name = "fake";
  table.enumerate = [](const anyattn_host*, uint32_t* count, anyattn_error* why) {
    const ProviderState& state = provider_state();
    *count = state.num_devices;
    if (state.why_none) anyattn_error_set(why, ANYATTN_OK, "%s", state.why_none);
    return int32_t{ANYATTN_OK};
  };
  table.facts = [](const anyattn_host*, int32_t ordinal, anyattn_device_facts* facts, anyattn_error*) {
    facts->ordinal = ordinal;
    facts->device_kind = ANYATTN_DEVICE_CUDA;
    facts->architecture = "sm_90";
    facts->name = "fake card";
    return int32_t{ANYATTN_OK};
  };
  table.set_current = [](int32_t, anyattn_error*) { return int32_t{ANYATTN_OK}; };
  table.alloc = provider_alloc;
  table.free = provider_free;
  table.alloc_pinned = provider_alloc;
  table.free_pinned = provider_free;
  table.fill = [](int32_t, void* memory, uint8_t byte, uint64_t bytes, void*, anyattn_error*) {
    ++provider_state().fills;
    std::memset(memory, byte, bytes);
    return int32_t{ANYATTN_OK};
  };
  table.stream_synchronize = [](int32_t, void*, anyattn_error*) { return int32_t{ANYATTN_OK}; };
  if (has_graphs) table.graph_capture_begin = [](int32_t, void*, anyattn_error*) { return int32_t{ANYATTN_OK}; };
  return table;
}

}  // namespace fake
