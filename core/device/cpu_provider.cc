// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_provider.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "anyattn/util.h"
#include "device/cpu_facts.h"

namespace anyattn::device {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kAlignment = 256;
// Below this, asking the kernel how much is left costs more than the answer is worth.
constexpr uint64_t kWorthChecking = uint64_t{64} << 20;

struct Event {
  std::chrono::steady_clock::time_point time;
};

// "MemAvailable: 123 kB" of /proc/meminfo in bytes; UINT64_MAX where it cannot be read.
uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  std::string unit;
  while (file >> key >> kib && std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return UINT64_MAX;
}

uint64_t read_memory_bytes() {
  const uint64_t physical = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream group("/sys/fs/cgroup/memory.max");
  uint64_t limit = 0;
  return group >> limit && limit > 0 && limit < physical ? limit : physical;
}

int32_t check(int32_t ordinal, anyattn_error* error) {
  if (ordinal == 0) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_NOT_FOUND, "cpu: there is no device cpu:%d; the only one is cpu:0", ordinal);
}

int32_t enumerate(const anyattn_host*, uint32_t* count, anyattn_error*) {
  *count = 1;
  return ANYATTN_OK;
}

int32_t facts(const anyattn_host*, int32_t ordinal, anyattn_device_facts* out, anyattn_error* error) {
  if (const int32_t status = check(ordinal, error)) return status;
  const anyattn_cpu_facts& cpu = cpu_facts();
  anyattn_device_facts own{};
  own.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  own.device_kind = ANYATTN_DEVICE_CPU;
  own.num_multiprocessors = cpu.num_cores;
  own.warp_size = 1;
  own.memory_bytes = cpu_memory_bytes();
  own.l2_bytes = cpu.l2_bytes;
  own.features = ANYATTN_DEVICE_HAS_HOST_MEMORY;
  own.architecture = architecture_name(cpu);
  own.name = cpu_name().c_str();
  const uint32_t size = out->struct_size < own.struct_size ? out->struct_size : own.struct_size;
  own.struct_size = size;
  std::memcpy(out, &own, size);
  return ANYATTN_OK;
}

int32_t set_current(int32_t ordinal, anyattn_error* error) { return check(ordinal, error); }

// posix_memalign and not mmap: sanitizers then guard both ends of every block that plugins get. Large blocks start on a huge
// page and ask for huge pages; an attention over a long cache touches one 4 KiB page a token and head otherwise.
int32_t alloc(int32_t ordinal, uint64_t bytes, void** memory, anyattn_error* error) {
  *memory = nullptr;
  if (const int32_t status = check(ordinal, error)) return status;
  if (bytes == 0) return ANYATTN_OK;
  if (bytes > cpu_memory_bytes()) {
    return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "cpu: %" PRIu64 " bytes asked for; this machine has %" PRIu64, bytes,
                             cpu_memory_bytes());
  }
  if (bytes >= kWorthChecking) {
    const uint64_t left = available_bytes();
    if (bytes > left) {
      return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW,
                               "cpu: %" PRIu64 " bytes asked for; %" PRIu64 " are free at the moment", bytes, left);
    }
  }
  const bool large = bytes >= kHugePage;
  if (posix_memalign(memory, large ? kHugePage : kAlignment, bytes) != 0) {
    *memory = nullptr;
    return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "cpu: the system did not give %" PRIu64 " bytes", bytes);
  }
  // A wish: without huge pages the block is as good, only slower.
  if (large) madvise(*memory, bytes, MADV_HUGEPAGE);
  return ANYATTN_OK;
}

void free_memory(int32_t, void* memory) { std::free(memory); }

int32_t copy(int32_t ordinal, void* to, const void* from, uint64_t bytes, uint32_t direction, void*, anyattn_error* error) {
  if (const int32_t status = check(ordinal, error)) return status;
  if (direction < ANYATTN_COPY_HOST_TO_DEVICE || direction > ANYATTN_COPY_DEVICE_TO_DEVICE) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "cpu: copy direction %u; allowed: 1 host to device, 2 device to host, 3 device to device",
                             direction);
  }
  if (bytes != 0) std::memmove(to, from, bytes);
  return ANYATTN_OK;
}

int32_t fill(int32_t ordinal, void* memory, uint8_t byte, uint64_t bytes, void*, anyattn_error* error) {
  if (const int32_t status = check(ordinal, error)) return status;
  if (bytes != 0) std::memset(memory, byte, bytes);
  return ANYATTN_OK;
}

// A stream is an address of its own and nothing else: all work is done when its call returns.
int32_t stream_create(int32_t ordinal, void** stream, anyattn_error* error) {
  *stream = nullptr;
  if (const int32_t status = check(ordinal, error)) return status;
  *stream = new (std::nothrow) char;
  return *stream ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "cpu: no memory for a stream");
}

void stream_destroy(int32_t, void* stream) { delete static_cast<char*>(stream); }

int32_t stream_synchronize(int32_t ordinal, void*, anyattn_error* error) { return check(ordinal, error); }

int32_t event_create(int32_t ordinal, void** event, anyattn_error* error) {
  *event = nullptr;
  if (const int32_t status = check(ordinal, error)) return status;
  *event = new (std::nothrow) Event{};
  return *event ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "cpu: no memory for an event");
}

void event_destroy(int32_t, void* event) { delete static_cast<Event*>(event); }

int32_t event_record(int32_t ordinal, void* event, void*, anyattn_error* error) {
  if (const int32_t status = check(ordinal, error)) return status;
  static_cast<Event*>(event)->time = std::chrono::steady_clock::now();
  return ANYATTN_OK;
}

int32_t event_wait(int32_t ordinal, void*, void*, anyattn_error* error) { return check(ordinal, error); }

int32_t event_elapsed(int32_t ordinal, void* from, void* to, float* milliseconds, anyattn_error* error) {
  if (const int32_t status = check(ordinal, error)) return status;
  const auto span = static_cast<Event*>(to)->time - static_cast<Event*>(from)->time;
  *milliseconds = std::chrono::duration<float, std::milli>(span).count();
  return ANYATTN_OK;
}

anyattn_device_provider make_provider() {
  anyattn_device_provider provider{};
  provider.struct_size = ANYATTN_DEVICE_PROVIDER_SIZE;
  provider.device_kind = ANYATTN_DEVICE_CPU;
  provider.name = "cpu";
  provider.enumerate = enumerate;
  provider.facts = facts;
  provider.set_current = set_current;
  provider.alloc = alloc;
  provider.free = free_memory;
  provider.alloc_pinned = alloc;
  provider.free_pinned = free_memory;
  provider.copy = copy;
  provider.fill = fill;
  provider.stream_create = stream_create;
  provider.stream_destroy = stream_destroy;
  provider.stream_synchronize = stream_synchronize;
  provider.event_create = event_create;
  provider.event_destroy = event_destroy;
  provider.event_record = event_record;
  provider.event_wait = event_wait;
  provider.event_elapsed = event_elapsed;
  return provider;
}

}  // namespace

uint64_t cpu_memory_bytes() {
  static const uint64_t bytes = read_memory_bytes();
  return bytes;
}

const anyattn_device_provider& cpu_provider() {
  static const anyattn_device_provider provider = make_provider();
  return provider;
}

}  // namespace anyattn::device
