/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, pinned host memory, events and graphs of a device, through the provider of its kind. Included by engines that bring no library of the
 * device's vendor; those that do pass their own streams. Handles are the vendor's (CUstream, hipEvent_t) as pointers, owned by
 * the caller, given back before the runtime. A stream null is the device's default stream. */
#ifndef ANYATTN_STREAMS_H
#define ANYATTN_STREAMS_H

#include "anyattn/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Work of the default stream does not hold such a stream up. */
ANYATTN_API int32_t anyattn_device_stream_create(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void** stream,
                                                 anyattn_error* error);
ANYATTN_API void anyattn_device_stream_destroy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream);
/* Host memory that copies reach at full speed; without waiting they read or write it when the stream comes to them. */
ANYATTN_API int32_t anyattn_device_alloc_pinned(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, uint64_t bytes,
                                                void** memory, anyattn_error* error);
ANYATTN_API void anyattn_device_free_pinned(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* memory);
/* Sets `bytes` bytes of device memory, queued on the stream. */
ANYATTN_API int32_t anyattn_device_fill(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* memory, uint8_t byte,
                                        uint64_t bytes, void* stream, anyattn_error* error);

ANYATTN_API int32_t anyattn_device_event_create(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void** event,
                                                anyattn_error* error);
ANYATTN_API void anyattn_device_event_destroy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* event);
ANYATTN_API int32_t anyattn_device_event_record(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* event,
                                                void* stream, anyattn_error* error);
/* Milliseconds between two recorded events; waits for the second. */
ANYATTN_API int32_t anyattn_device_event_elapsed(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* from, void* to,
                                                 float* milliseconds, anyattn_error* error);

/* What is queued on the stream between begin and end becomes the graph and does not run. Until the end no thread may allocate,
 * load code or wait on the device: such a call fails (CAPTURE_VIOLATION), and so does the end. The stream is one of
 * stream_create or the engine's own. A kind whose provider has no graphs answers UNIMPLEMENTED. */
ANYATTN_API int32_t anyattn_device_graph_begin(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream,
                                               anyattn_error* error);
ANYATTN_API int32_t anyattn_device_graph_end(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream,
                                             void** graph, anyattn_error* error);
ANYATTN_API int32_t anyattn_device_graph_launch(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* graph,
                                                void* stream, anyattn_error* error);
ANYATTN_API void anyattn_device_graph_destroy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* graph);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_STREAMS_H */
