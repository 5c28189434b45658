/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: their facts, and the provider that knows memory, streams, events and graphs of one kind.
 * Included by plugins that bring a provider and by backends that read facts. The CPU's provider is built into the core. */
#ifndef ANYATTN_DEVICE_H
#define ANYATTN_DEVICE_H

#include "anyattn/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything `supports` may know of a device; needs no device to be read. Strings are borrowed for the call. */
typedef struct anyattn_device_facts {
  uint32_t struct_size; /* end offset of the last field the writer knew                              */
  uint32_t device_kind; /* ANYATTN_DEVICE_*                                                          */
  int32_t ordinal;
  uint32_t arch_major;              /* 9 of sm_90; 9 of gfx942; 0 on the CPU                                     */
  uint32_t arch_minor;              /* 0 of sm_90; 0x42 of gfx942                                                */
  uint32_t num_multiprocessors;     /* SMs, compute units, cores                                                 */
  uint32_t warp_size;               /* 32, 64; 1 on the CPU                                                      */
  uint32_t shared_memory_per_block; /* bytes a block may opt in to; 0 on the CPU                                 */
  uint64_t memory_bytes;            /* in all                                                                    */
  uint64_t l2_bytes;                /* 0 = unknown                                                               */
  uint64_t features;                /* ANYATTN_DEVICE_HAS_*                                                      */
  uint32_t driver_version;          /* 1000 * major + 10 * minor as the vendor counts; 0 = no driver             */
  uint32_t runtime_version;         /* likewise                                                                  */
  uint32_t compiler_version;        /* run-time compiler (NVRTC, hiprtc), likewise; 0 = none                     */
  uint32_t reserved;                /* 0                                                                         */
  const char* architecture;         /* "sm_90", "gfx942", "x86-64-v4"; never null                                */
  const char* name;                 /* for people; never null                                                    */
} anyattn_device_facts;
#define ANYATTN_DEVICE_FACTS_SIZE ANYATTN_END_OFFSET(anyattn_device_facts, name)

#define ANYATTN_DEVICE_HAS_GRAPHS (UINT64_C(1) << 0)
#define ANYATTN_DEVICE_HAS_HOST_MEMORY (UINT64_C(1) << 1) /* device pointers are host pointers */

#define ANYATTN_COPY_HOST_TO_DEVICE 1u
#define ANYATTN_COPY_DEVICE_TO_HOST 2u
#define ANYATTN_COPY_DEVICE_TO_DEVICE 3u

/* One kind of device. All slots up to event_elapsed are required; the graph slots are optional together (absent: the
 * kind has no graphs). Streams, events and graphs are the vendor's native handles as pointers; stream null is the default
 * stream. No slot leaves another device current than it found, set_current excepted. */
typedef struct anyattn_device_provider {
  uint32_t struct_size; /* end offset of the last field the writer knew  */
  uint32_t device_kind; /* ANYATTN_DEVICE_*                              */
  const char* name;     /* "cuda", "hip"; the kind's name in every text  */
  /* Number of devices; 0 with OK where there are none or no driver: `why` then gets one sentence. */
  int32_t (*enumerate)(const anyattn_host* host, uint32_t* count, anyattn_error* why);
  /* Fills what fits of *facts (sized and zeroed by the caller). Strings live as long as the process. */
  int32_t (*facts)(const anyattn_host* host, int32_t ordinal, anyattn_device_facts* facts, anyattn_error* error);
  int32_t (*set_current)(int32_t ordinal, anyattn_error* error);
  /* Device memory, 256-byte aligned, contents undefined. OUT_OF_MEMORY / MEMORY_NOT_NOW. free accepts null. */
  int32_t (*alloc)(int32_t ordinal, uint64_t bytes, void** memory, anyattn_error* error);
  void (*free)(int32_t ordinal, void* memory);
  int32_t (*alloc_pinned)(int32_t ordinal, uint64_t bytes, void** memory, anyattn_error* error);
  void (*free_pinned)(int32_t ordinal, void* memory);
  /* Queued on the stream; `direction` is ANYATTN_COPY_*. */
  int32_t (*copy)(int32_t ordinal, void* to, const void* from, uint64_t bytes, uint32_t direction, void* stream,
                  anyattn_error* error);
  int32_t (*fill)(int32_t ordinal, void* memory, uint8_t byte, uint64_t bytes, void* stream, anyattn_error* error);
  int32_t (*stream_create)(int32_t ordinal, void** stream, anyattn_error* error);
  void (*stream_destroy)(int32_t ordinal, void* stream);
  int32_t (*stream_synchronize)(int32_t ordinal, void* stream, anyattn_error* error);
  int32_t (*event_create)(int32_t ordinal, void** event, anyattn_error* error);
  void (*event_destroy)(int32_t ordinal, void* event);
  int32_t (*event_record)(int32_t ordinal, void* event, void* stream, anyattn_error* error);
  int32_t (*event_wait)(int32_t ordinal, void* event, void* stream, anyattn_error* error); /* the stream waits */
  /* Milliseconds between two recorded events; waits for the second. */
  int32_t (*event_elapsed)(int32_t ordinal, void* from, void* to, float* milliseconds, anyattn_error* error);
  /* Optional together. */
  int32_t (*graph_capture_begin)(int32_t ordinal, void* stream, anyattn_error* error);
  int32_t (*graph_capture_end)(int32_t ordinal, void* stream, void** graph, anyattn_error* error);
  int32_t (*graph_launch)(int32_t ordinal, void* graph, void* stream, anyattn_error* error);
  void (*graph_destroy)(int32_t ordinal, void* graph);
} anyattn_device_provider;
#define ANYATTN_DEVICE_PROVIDER_SIZE ANYATTN_END_OFFSET(anyattn_device_provider, graph_destroy)

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_DEVICE_H */
