// SPDX-License-Identifier: Apache-2.0
// The C API's streams, pinned memory, events and graphs of a device: each call goes to the provider of the kind.
#include "anyattn/streams.h"
#include "api/guard.h"
#include "api/provider_call.h"
#include "api/runtime_object.h"

namespace anyattn::api {
namespace {

const anyattn_device_provider& provider_of(anyattn_runtime* runtime, const char* function, uint32_t kind, int32_t ordinal) {
  require_given(runtime, function, "runtime");
  return runtime->object->provider({kind, ordinal});
}

// The same, of a kind that captures graphs.
const anyattn_device_provider& graphs_of(anyattn_runtime* runtime, const char* function, uint32_t kind, int32_t ordinal) {
  const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
  if (!provider.graph_capture_begin) {
    throw StatusError(ANYATTN_UNIMPLEMENTED, std::string(function) + ": devices of kind " + device::kind_name(kind) +
                                                 " capture no graphs; queue the calls themselves");
  }
  return provider;
}

// Gives a handle back; null is nothing to give.
void destroy(anyattn_runtime* runtime, const char* function, uint32_t kind, int32_t ordinal, void* handle,
             void (*anyattn_device_provider::*slot)(int32_t, void*)) {
  if (!runtime || !handle) return;
  guarded(function, nullptr, [&] {
    loader::call_void({"provider", function}, nullptr, runtime->object->provider({kind, ordinal}).*slot, ordinal, handle);
  });
}

}  // namespace
}  // namespace anyattn::api

using namespace anyattn::api;  // NOLINT(google-build-using-namespace): this file is the API of that namespace

int32_t anyattn_device_stream_create(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void** stream,
                                     anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(stream, function, "stream");
    *stream = nullptr;
    const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
    call_provider(provider, "stream_create", provider.stream_create, ordinal, stream);
  });
}

void anyattn_device_stream_destroy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream) {
  destroy(runtime, __func__, kind, ordinal, stream, &anyattn_device_provider::stream_destroy);
}

int32_t anyattn_device_alloc_pinned(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, uint64_t bytes, void** memory,
                                    anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(memory, function, "memory");
    *memory = nullptr;
    const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
    call_provider(provider, "alloc_pinned", provider.alloc_pinned, ordinal, bytes, memory);
  });
}

void anyattn_device_free_pinned(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* memory) {
  destroy(runtime, __func__, kind, ordinal, memory, &anyattn_device_provider::free_pinned);
}

int32_t anyattn_device_fill(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* memory, uint8_t byte,
                            uint64_t bytes, void* stream, anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    if (bytes > 0) require_given(memory, function, "memory");
    const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
    if (bytes > 0) call_provider(provider, "fill", provider.fill, ordinal, memory, byte, bytes, stream);
  });
}

int32_t anyattn_device_event_create(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void** event,
                                    anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(event, function, "event");
    *event = nullptr;
    const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
    call_provider(provider, "event_create", provider.event_create, ordinal, event);
  });
}

void anyattn_device_event_destroy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* event) {
  destroy(runtime, __func__, kind, ordinal, event, &anyattn_device_provider::event_destroy);
}

int32_t anyattn_device_event_record(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* event, void* stream,
                                    anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(event, function, "event");
    const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
    call_provider(provider, "event_record", provider.event_record, ordinal, event, stream);
  });
}

int32_t anyattn_device_event_elapsed(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* from, void* to,
                                     float* milliseconds, anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(from, function, "from");
    require_given(to, function, "to");
    require_given(milliseconds, function, "milliseconds");
    const anyattn_device_provider& provider = provider_of(runtime, function, kind, ordinal);
    call_provider(provider, "event_elapsed", provider.event_elapsed, ordinal, from, to, milliseconds);
  });
}

int32_t anyattn_device_graph_begin(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream,
                                   anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    const anyattn_device_provider& provider = graphs_of(runtime, function, kind, ordinal);
    call_provider(provider, "graph_capture_begin", provider.graph_capture_begin, ordinal, stream);
  });
}

int32_t anyattn_device_graph_end(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream, void** graph,
                                 anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(graph, function, "graph");
    *graph = nullptr;
    const anyattn_device_provider& provider = graphs_of(runtime, function, kind, ordinal);
    call_provider(provider, "graph_capture_end", provider.graph_capture_end, ordinal, stream, graph);
  });
}

int32_t anyattn_device_graph_launch(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* graph, void* stream,
                                    anyattn_error* error) {
  return guarded(__func__, error, [&, function = __func__] {
    require_given(graph, function, "graph");
    const anyattn_device_provider& provider = graphs_of(runtime, function, kind, ordinal);
    call_provider(provider, "graph_launch", provider.graph_launch, ordinal, graph, stream);
  });
}

void anyattn_device_graph_destroy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* graph) {
  destroy(runtime, __func__, kind, ordinal, graph, &anyattn_device_provider::graph_destroy);
}
