// SPDX-License-Identifier: Apache-2.0
// The pretended device cuda:0: host memory, streams that queue, graphs that replay. Allocating while a stream is captured is a
// violation, as on the devices it stands for.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "anyattn/device.h"
#include "anyattn/util.h"
#include "queue.h"

namespace pretend {
namespace {

int captures = 0;  // streams under capture

int32_t violation(const char* what, anyattn_error* error) {
  return anyattn_error_set(error, ANYATTN_CAPTURE_VIOLATION, "pretend: %s while a stream is captured", what);
}

int32_t enumerate(const anyattn_host*, uint32_t* count, anyattn_error*) {
  *count = 1;
  return ANYATTN_OK;
}

int32_t facts(const anyattn_host*, int32_t, anyattn_device_facts* out, anyattn_error*) {
  anyattn_device_facts own{};
  own.struct_size = out->struct_size < ANYATTN_DEVICE_FACTS_SIZE ? out->struct_size : ANYATTN_DEVICE_FACTS_SIZE;
  own.device_kind = ANYATTN_DEVICE_CUDA;
  own.arch_major = 7;
  own.arch_minor = 5;
  own.num_multiprocessors = 2;
  own.warp_size = 32;
  own.memory_bytes = uint64_t{1} << 31;
  own.l2_bytes = uint64_t{1} << 20;
  own.features = ANYATTN_DEVICE_HAS_GRAPHS;
  own.driver_version = own.runtime_version = 13000;
  own.architecture = "sm_75";
  own.name = "pretended device";
  std::memcpy(out, &own, own.struct_size);
  return ANYATTN_OK;
}

int32_t set_current(int32_t, anyattn_error*) { return ANYATTN_OK; }

int32_t alloc(int32_t, uint64_t bytes, void** memory, anyattn_error* error) {
  *memory = nullptr;
  if (captures > 0) return violation("alloc", error);
  if (bytes > uint64_t{1} << 31) return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "pretend: the device has 2 GiB");
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "pretend: no memory");
}

void release(int32_t, void* memory) { std::free(memory); }

int32_t copy(int32_t, void* to, const void* from, uint64_t bytes, uint32_t direction, void* stream, anyattn_error*) {
  auto* const own = static_cast<Stream*>(stream);
  Work work = [=] { std::memcpy(to, from, bytes); };
  if (direction == ANYATTN_COPY_HOST_TO_DEVICE && own && !own->captured) {
    own->late.push_back(std::move(work));
  } else {
    queue(stream, std::move(work));
  }
  return ANYATTN_OK;
}

int32_t fill(int32_t, void* memory, uint8_t byte, uint64_t bytes, void* stream, anyattn_error*) {
  queue(stream, [=] { std::memset(memory, byte, bytes); });
  return ANYATTN_OK;
}

int32_t stream_create(int32_t, void** stream, anyattn_error*) {
  *stream = new Stream;
  return ANYATTN_OK;
}
void stream_destroy(int32_t, void* stream) { delete static_cast<Stream*>(stream); }
int32_t stream_synchronize(int32_t, void* stream, anyattn_error* error) {
  if (captures > 0) return violation("stream_synchronize", error);
  run_late(static_cast<Stream*>(stream));
  return ANYATTN_OK;
}

using Time = std::chrono::steady_clock::time_point;
int32_t event_create(int32_t, void** event, anyattn_error*) {
  *event = new Time;
  return ANYATTN_OK;
}
void event_destroy(int32_t, void* event) { delete static_cast<Time*>(event); }
int32_t event_record(int32_t, void* event, void* stream, anyattn_error*) {
  queue(stream, [=] { *static_cast<Time*>(event) = std::chrono::steady_clock::now(); });
  return ANYATTN_OK;
}
int32_t event_wait(int32_t, void*, void*, anyattn_error*) { return ANYATTN_OK; }
int32_t event_elapsed(int32_t, void* from, void* to, float* milliseconds, anyattn_error*) {
  *milliseconds = std::chrono::duration<float, std::milli>(*static_cast<Time*>(to) - *static_cast<Time*>(from)).count();
  return ANYATTN_OK;
}

int32_t graph_capture_begin(int32_t, void* stream, anyattn_error* error) {
  if (!stream || static_cast<Stream*>(stream)->captured)
    return violation("a second capture of a stream, or of the default one,", error);
  static_cast<Stream*>(stream)->captured = new std::vector<Work>;
  ++captures;
  return ANYATTN_OK;
}
int32_t graph_capture_end(int32_t, void* stream, void** graph, anyattn_error*) {
  Stream& own = *static_cast<Stream*>(stream);
  *graph = new Graph{std::move(*own.captured)};
  delete own.captured;
  own.captured = nullptr;
  --captures;
  return ANYATTN_OK;
}
int32_t graph_launch(int32_t, void* graph, void* stream, anyattn_error*) {
  run_late(static_cast<Stream*>(stream));
  for (const Work& work : static_cast<Graph*>(graph)->work) work();
  return ANYATTN_OK;
}
void graph_destroy(int32_t, void* graph) { delete static_cast<Graph*>(graph); }

}  // namespace

extern const anyattn_device_provider kProvider;
const anyattn_device_provider kProvider = {
    .struct_size = ANYATTN_DEVICE_PROVIDER_SIZE,
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
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .graph_capture_begin = graph_capture_begin,
    .graph_capture_end = graph_capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};

}  // namespace pretend
