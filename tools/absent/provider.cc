// SPDX-License-Identifier: Apache-2.0
// A CUDA device that is not here: its facts by the option `architecture`, its memory the host's. `anyattn warm --arch` loads it by
// path, so that backends which compile at run time fill a cache for it; it lies in no folder that is searched.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "anyattn/absent_device.hpp"
#include "anyattn/host.hpp"
#include "anyattn/plugin.hpp"
#include "anyattn/util.h"

namespace {

std::optional<anyattn_device_facts> asked(const anyattn_host* host) {
  return anyattn::absent_cuda_device(anyattn::Host(host).option("architecture", ""));
}

int32_t enumerate(const anyattn_host* host, uint32_t* count, anyattn_error* why) {
  *count = asked(host) ? 1 : 0;
  if (*count == 1) return ANYATTN_OK;
  return anyattn_error_set(why, ANYATTN_OK, "absent device: architecture %s; allowed: %s",
                           std::string(anyattn::Host(host).option("architecture", "(none)")).c_str(),
                           anyattn::kAbsentCudaDevices);
}

int32_t facts(const anyattn_host* host, int32_t, anyattn_device_facts* out, anyattn_error* error) {
  std::optional<anyattn_device_facts> own = asked(host);
  if (!own) return anyattn_error_set(error, ANYATTN_NOT_FOUND, "absent device: the option architecture names none");
  own->struct_size = std::min(out->struct_size, own->struct_size);
  std::memcpy(out, &*own, own->struct_size);
  return ANYATTN_OK;
}

int32_t set_current(int32_t, anyattn_error*) { return ANYATTN_OK; }

int32_t alloc(int32_t, uint64_t bytes, void** memory, anyattn_error* error) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "absent device: no memory");
}
void release(int32_t, void* memory) { std::free(memory); }

int32_t copy(int32_t, void* to, const void* from, uint64_t bytes, uint32_t, void*, anyattn_error*) {
  std::memcpy(to, from, bytes);
  return ANYATTN_OK;
}
int32_t fill(int32_t, void* memory, uint8_t byte, uint64_t bytes, void*, anyattn_error*) {
  std::memset(memory, byte, bytes);
  return ANYATTN_OK;
}

// Nothing ever runs here: streams and events are null.
int32_t make_none(int32_t, void** handle, anyattn_error*) {
  *handle = nullptr;
  return ANYATTN_OK;
}
void forget(int32_t, void*) {}
int32_t wait(int32_t, void*, anyattn_error*) { return ANYATTN_OK; }
int32_t pass(int32_t, void*, void*, anyattn_error*) { return ANYATTN_OK; }
int32_t elapsed(int32_t, void*, void*, float* milliseconds, anyattn_error*) {
  *milliseconds = 0;
  return ANYATTN_OK;
}

constexpr anyattn_device_provider kProvider = {.struct_size = ANYATTN_DEVICE_PROVIDER_SIZE,
                                               .device_kind = ANYATTN_DEVICE_CUDA,
                                               .name = "cuda",
                                               .enumerate = enumerate,
                                               .facts = facts,
                                               .set_current = set_current,
                                               .alloc = alloc,
                                               .free = release,
                                               .alloc_pinned = alloc,
                                               .free_pinned = release,
                                               .copy = copy,
                                               .fill = fill,
                                               .stream_create = make_none,
                                               .stream_destroy = forget,
                                               .stream_synchronize = wait,
                                               .event_create = make_none,
                                               .event_destroy = forget,
                                               .event_record = pass,
                                               .event_wait = pass,
                                               .event_elapsed = elapsed,
                                               .graph_capture_begin = nullptr,
                                               .graph_capture_end = nullptr,
                                               .graph_launch = nullptr,
                                               .graph_destroy = nullptr};

}  // namespace

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_min, uint32_t host_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  static constexpr const anyattn_device_provider* kProviders[] = {&kProvider};
  static constexpr anyattn_option_info kOptions[] = {
      {ANYATTN_OPTION_INFO_SIZE, 0, "architecture", "", "sm_80 | sm_86 | sm_89 | sm_90 | sm_100 | sm_120"}};
  static constexpr anyattn::PluginInfo kInfo{
      "org.anyattn.device.absent", "AnyAttn", ANYATTN_ABSENT_VERSION, "Apache-2.0", kOptions, 1, kProviders, 1};
  return anyattn::PluginTable<kInfo>::enter(host_min, host_max, plugin, error);
}
