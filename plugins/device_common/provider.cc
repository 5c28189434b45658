// SPDX-License-Identifier: Apache-2.0
// Memory, streams, events and graphs through the vendor's runtime; one text for all vendors, in CUDA's names.
#include "provider.h"

#include "call.h"
#include "facts.h"

namespace anyattn::device {
namespace {

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }

int32_t set_current(int32_t ordinal, anyattn_error* error) {
  return check(cudaSetDevice(ordinal), "set_current", ordinal, error);
}

// An allocation larger than the whole device never fits; any other may later.
int32_t alloc(int32_t ordinal, uint64_t bytes, void** memory, anyattn_error* error) {
  *memory = nullptr;
  const CurrentDevice current(ordinal);
  if (current.code() != cudaSuccess) return failed(current.code(), "alloc", ordinal, error);
  const cudaError_t code = cudaMalloc(memory, bytes);
  if (code != cudaErrorMemoryAllocation) return check(code, "alloc", ordinal, error);
  (void)cudaGetLastError();
  *memory = nullptr;
  size_t free_bytes = 0, total_bytes = 0;
  (void)cudaMemGetInfo(&free_bytes, &total_bytes);
  return anyattn_error_set(error, bytes > total_bytes ? ANYATTN_OUT_OF_MEMORY : ANYATTN_MEMORY_NOT_NOW,
                           "%s:%d: alloc of %llu bytes: %zu of %zu are free; ask for less, or release something", kDevice,
                           ordinal, static_cast<unsigned long long>(bytes), free_bytes, total_bytes);
}

void release(int32_t ordinal, void* memory) {
  const CurrentDevice current(ordinal);
  if (memory) (void)cudaFree(memory);
}

int32_t alloc_pinned(int32_t ordinal, uint64_t bytes, void** memory, anyattn_error* error) {
  *memory = nullptr;
  return on_device(ordinal, "alloc_pinned", error, [&] { return cudaHostAlloc(memory, bytes, cudaHostAllocPortable); });
}

void release_pinned(int32_t ordinal, void* memory) {
  const CurrentDevice current(ordinal);
  if (memory) (void)cudaFreeHost(memory);
}

int32_t copy(int32_t ordinal, void* to, const void* from, uint64_t bytes, uint32_t direction, void* stream,
             anyattn_error* error) {
  cudaMemcpyKind kind;
  switch (direction) {
    case ANYATTN_COPY_HOST_TO_DEVICE:
      kind = cudaMemcpyHostToDevice;
      break;
    case ANYATTN_COPY_DEVICE_TO_HOST:
      kind = cudaMemcpyDeviceToHost;
      break;
    case ANYATTN_COPY_DEVICE_TO_DEVICE:
      kind = cudaMemcpyDeviceToDevice;
      break;
    default:
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                               "%s:%d: copy: direction=%u; allowed: 1 host to device, 2 device to host, 3 device to device",
                               kDevice, ordinal, direction);
  }
  return on_device(ordinal, "copy", error, [&] { return cudaMemcpyAsync(to, from, bytes, kind, as_stream(stream)); });
}

int32_t fill(int32_t ordinal, void* memory, uint8_t byte, uint64_t bytes, void* stream, anyattn_error* error) {
  return on_device(ordinal, "fill", error, [&] { return cudaMemsetAsync(memory, byte, bytes, as_stream(stream)); });
}

// Non-blocking: work of the caller's default stream does not hold these streams up.
int32_t stream_create(int32_t ordinal, void** stream, anyattn_error* error) {
  *stream = nullptr;
  return on_device(ordinal, "stream_create", error,
                   [&] { return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking); });
}

void stream_destroy(int32_t ordinal, void* stream) {
  const CurrentDevice current(ordinal);
  if (stream) (void)cudaStreamDestroy(as_stream(stream));
}

int32_t stream_synchronize(int32_t ordinal, void* stream, anyattn_error* error) {
  return on_device(ordinal, "stream_synchronize", error, [&] { return cudaStreamSynchronize(as_stream(stream)); });
}

int32_t event_create(int32_t ordinal, void** event, anyattn_error* error) {
  *event = nullptr;
  return on_device(ordinal, "event_create", error, [&] { return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)); });
}

void event_destroy(int32_t ordinal, void* event) {
  const CurrentDevice current(ordinal);
  if (event) (void)cudaEventDestroy(as_event(event));
}

int32_t event_record(int32_t ordinal, void* event, void* stream, anyattn_error* error) {
  return on_device(ordinal, "event_record", error, [&] { return cudaEventRecord(as_event(event), as_stream(stream)); });
}

int32_t event_wait(int32_t ordinal, void* event, void* stream, anyattn_error* error) {
  return on_device(ordinal, "event_wait", error, [&] { return cudaStreamWaitEvent(as_stream(stream), as_event(event), 0); });
}

int32_t event_elapsed(int32_t ordinal, void* from, void* to, float* milliseconds, anyattn_error* error) {
  return on_device(ordinal, "event_elapsed", error, [&] {
    const cudaError_t code = cudaEventSynchronize(as_event(to));
    return code == cudaSuccess ? cudaEventElapsedTime(milliseconds, as_event(from), as_event(to)) : code;
  });
}

// Global mode: an allocation, module load or synchronisation by any thread meanwhile is an error here, not a wrong graph later.
int32_t graph_capture_begin(int32_t ordinal, void* stream, anyattn_error* error) {
  if (!stream)
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "%s:%d: graph_capture_begin: the default stream cannot be captured; pass a stream of "
                             "stream_create",
                             kDevice, ordinal);
  return on_device(ordinal, "graph_capture_begin", error,
                   [&] { return cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeGlobal); });
}

int32_t graph_capture_end(int32_t ordinal, void* stream, void** graph, anyattn_error* error) {
  *graph = nullptr;
  return on_device(ordinal, "graph_capture_end", error, [&] {
    cudaGraph_t captured = nullptr;
    cudaError_t code = cudaStreamEndCapture(as_stream(stream), &captured);
    if (code == cudaSuccess) code = instantiate(reinterpret_cast<cudaGraphExec_t*>(graph), captured);
    if (captured) (void)cudaGraphDestroy(captured);
    return code;
  });
}

int32_t graph_launch(int32_t ordinal, void* graph, void* stream, anyattn_error* error) {
  return on_device(ordinal, "graph_launch", error,
                   [&] { return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), as_stream(stream)); });
}

void graph_destroy(int32_t ordinal, void* graph) {
  const CurrentDevice current(ordinal);
  if (graph) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace

const anyattn_device_provider kProvider = {
    .struct_size = ANYATTN_DEVICE_PROVIDER_SIZE,
    .device_kind = kDeviceKind,
    .name = kDevice,
    .enumerate = enumerate,
    .facts = facts,
    .set_current = set_current,
    .alloc = alloc,
    .free = release,
    .alloc_pinned = alloc_pinned,
    .free_pinned = release_pinned,
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

}  // namespace anyattn::device
