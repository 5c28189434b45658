/* SPDX-License-Identifier: Apache-2.0 */
/* The C API an engine links: a runtime from a YAML file, groups of equal layers, and the hot calls.
 * Included by engines and language bindings; plugins never see it. KV blocks are in kv_pool.h, batch planning in step.h.
 *
 * Every function returns a status of types.h and fills `error` (null allowed); destroy and free return nothing and accept
 * null. Texts handed out are UTF-8, owned by the caller, released with anyattn_text_free. Threads: everything is safe from any
 * thread, except that one group's update is called by one thread while none reads that part (attention.h). */
#ifndef ANYATTN_RUNTIME_H
#define ANYATTN_RUNTIME_H

#include "anyattn/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ANYATTN_API __attribute__((visibility("default")))
#else
#define ANYATTN_API
#endif

typedef struct anyattn_runtime anyattn_runtime; /* configuration, plugins, devices, threads                              */
typedef struct anyattn_group anyattn_group;     /* layers with equal problem and one block table: impl(s), metadata, memory */

ANYATTN_API void anyattn_text_free(char* text);
ANYATTN_API const char* anyattn_version(void); /* of the library; static */

/* ---- runtime -------------------------------------------------------------------------------------------- */

typedef struct anyattn_runtime_options {
  uint32_t struct_size;    /* end offset of the last field the caller knew                                          */
  uint32_t num_threads;    /* workers of the CPU pool, the caller counted; 0 = the cores this process may run on    */
  const char* config_path; /* null: ANYATTN_CONFIG, else the default.yaml installed with the library                */
  const char* backend;     /* a must for every selection (a command line's flag); null: ANYATTN_BACKEND, else the file */
  const char* log_level;   /* null: ANYATTN_LOG_LEVEL, else the file                                                */
} anyattn_runtime_options;
#define ANYATTN_RUNTIME_OPTIONS_SIZE ANYATTN_END_OFFSET(anyattn_runtime_options, log_level)

/* Reads the configuration, discovers and registers plugins. Fails only on a wrong configuration or a required plugin that does
 * not load; every other bad plugin is kept as a skip with its reason. options may be null. */
ANYATTN_API int32_t anyattn_runtime_create(const anyattn_runtime_options* options, anyattn_runtime** runtime,
                                           anyattn_error* error);
ANYATTN_API void anyattn_runtime_destroy(anyattn_runtime* runtime); /* after every group and pool made from it */

/* Counts registry changes; a decision made under an older number is made anew. */
ANYATTN_API uint64_t anyattn_runtime_generation(const anyattn_runtime* runtime);

/* JSON: generation, backends[].{name,device,plugin,path,state,overrides,overridden_by,beneath[].{plugin,path,state},quarantined},
 * one a name and device: plugin answers, overrides names the one beneath it, overridden_by who took the name from its first owner;
 * skipped[].{path,stage,reason,remedy}, plugins[].{id,vendor,version,license,path,abi_min,abi_max,state,origin,content,signed_by,
 * device_code[],providers[]}; quarantined: why automatic choices pass over it; state: listed, open, draining (a group uses it) or retired. */
ANYATTN_API int32_t anyattn_runtime_list(anyattn_runtime* runtime, char** json, anyattn_error* error);
/* JSON: values[].{key,value,origin}: origin is flag, environment NAME, FILE:LINE or default. */
ANYATTN_API int32_t anyattn_runtime_config(anyattn_runtime* runtime, char** json, anyattn_error* error);
/* JSON: devices[].{kind,ordinal,name,architecture,memory_bytes,facts...,plugins_without_code[],profile}, missing[].{kind,reason};
 * cpu{isa[],cores...}. plugins_without_code: ids with code of its vendor, none for it. profile: null, {file,date,problems,stale}. */
ANYATTN_API int32_t anyattn_runtime_devices(anyattn_runtime* runtime, char** json, anyattn_error* error);
/* JSON: problem (every field by name), device, chosen, origin (order, profile, rule FILE:LINE, flag, ...), profile{},
 * candidates[].{backend,plugin,stage,verdict,reasons[].{id,field,wanted,allowed,hint},place,measured[],report}.
 * OK although nothing was chosen (chosen null). backend: a must of this call, may be null. device: "auto", "cpu", "cuda:0". */
ANYATTN_API int32_t anyattn_runtime_explain(anyattn_runtime* runtime, const anyattn_problem* problem, const char* device,
                                            const char* backend, char** json, anyattn_error* error);

/* "auto" -> the first present of cuda, hip, cpu; "cpu", "cuda:1" -> kind and ordinal. NOT_FOUND says why it is not there. */
ANYATTN_API int32_t anyattn_runtime_resolve_device(anyattn_runtime* runtime, const char* device, uint32_t* kind,
                                                   int32_t* ordinal, anyattn_error* error);

/* Loads the plugin file (absolute path) as if named in plugins.entries, or points `name` on `device_kind` to a plugin already
 * there (where = its id). An existing name is overridden only if registry.override allows it. A new generation. */
ANYATTN_API int32_t anyattn_runtime_register_backend(anyattn_runtime* runtime, const char* name, uint32_t device_kind,
                                                     const char* where, anyattn_error* error);
/* Reads the configuration again: a new generation of plugins and policy for groups made from here on; groups that are there keep
 * theirs. A file that changed is opened from a private copy. Fails, and changes nothing, where the configuration does not load,
 * or a plugin that is open now and still configured does not open. Any thread; calls in flight are not disturbed. */
ANYATTN_API int32_t anyattn_runtime_reload(anyattn_runtime* runtime, anyattn_error* error);
/* Takes the latest override of `name` back; the one below it answers again. A new generation. */
ANYATTN_API int32_t anyattn_runtime_clear_override(anyattn_runtime* runtime, const char* name, uint32_t device_kind,
                                                   anyattn_error* error);

/* ---- device memory, through the provider of the kind ---------------------------------------------------- */

ANYATTN_API int32_t anyattn_device_alloc(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, uint64_t bytes,
                                         void** memory, anyattn_error* error);
ANYATTN_API void anyattn_device_free(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* memory);
/* direction: ANYATTN_COPY_* of device.h (1 host to device, 2 device to host, 3 device to device). */
ANYATTN_API int32_t anyattn_device_copy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* to, const void* from,
                                        uint64_t bytes, uint32_t direction, void* stream, anyattn_error* error);
ANYATTN_API int32_t anyattn_device_synchronize(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream,
                                               anyattn_error* error);

/* From here on no block of scratch grows or moves: a group that needs more than every group before it is OUT_OF_MEMORY with both
 * numbers, and on a device with graphs a stream without a block is CAPTURE_VIOLATION. Call it before capturing graphs. */
ANYATTN_API int32_t anyattn_runtime_lock_memory(anyattn_runtime* runtime, anyattn_error* error);

/* ---- groups --------------------------------------------------------------------------------------------- */

typedef struct anyattn_group_options {
  uint32_t struct_size;           /* end offset of the last field the caller knew                                  */
  uint32_t metadata_mode;         /* ANYATTN_METADATA_* of backend.h: 0 normal, 1 fast, 2 graph capture            */
  const anyattn_problem* problem; /* copied; block_size 0 and kv_cache_dtype null or "auto" are filled in          */
  const anyattn_limits* limits;   /* copied; max_blocks_per_req 0 = ceil(max_seq_len / block_size)                 */
  const char* device;             /* "auto", "cpu", "cuda:0"; null = "auto"                                        */
  const char* backend;            /* a must of this call; null = the policy decides                                */
  const char* label;              /* the layer kind, for texts and JSON; may be null                               */
  void* stream;                   /* warm-up runs here                                                             */
} anyattn_group_options;
#define ANYATTN_GROUP_OPTIONS_SIZE ANYATTN_END_OFFSET(anyattn_group_options, stream)

/* Selects, asks for the cache spec, makes the device current on this thread, creates the impl(s), reserves memory, warms up,
 * creates metadata. The error of a refused
 * selection holds every candidate's reasons. */
ANYATTN_API int32_t anyattn_group_create(anyattn_runtime* runtime, const anyattn_group_options* options, anyattn_group** group,
                                         anyattn_error* error);
ANYATTN_API void anyattn_group_destroy(anyattn_group* group);

/* Strings live as long as the group. */
typedef struct anyattn_group_info {
  uint32_t struct_size; /* end offset of the last field the caller knew                            */
  uint32_t device_kind;
  int32_t device_ordinal;
  uint32_t is_mla;           /* 1: forward_mqa, context_gather, forward_mha; 0: forward                 */
  uint32_t needs_split;      /* 1: DECODE and PREFILL parts are updated apart (MLA, or two backends)    */
  uint32_t block_size;       /* kernel block; 0 where ragged                                            */
  uint32_t decode_threshold; /* rows a request may have and still be decode; >= 1                       */
  uint32_t graph_level;      /* reached in warm-up                                                      */
  uint32_t query_lengths;    /* ANYATTN_QUERY_* of the decode backend                                   */
  uint32_t lse_bases;        /* bits                                                                    */
  const char* backend;       /* of prefill (and of decode unless needs_split with two)                  */
  const char* decode_backend;
  const char* plugin;         /* id                                                                      */
  const char* kv_cache_dtype; /* resolved; null where ragged                                             */
  const char* label;
  const anyattn_kv_cache_spec* spec; /* null where ragged; lives as long as the group                           */
  uint64_t scratch_bytes;
  uint64_t persistent_bytes;
} anyattn_group_info;
#define ANYATTN_GROUP_INFO_SIZE ANYATTN_END_OFFSET(anyattn_group_info, persistent_bytes)

/* Fills what fits of *info (struct_size set by the caller). */
ANYATTN_API int32_t anyattn_group_get_info(const anyattn_group* group, anyattn_group_info* info, anyattn_error* error);

/* ---- hot path: no lock, allocation, file, environment read or selection --------------------------------- */

/* Once a step and part: ANYATTN_PHASE_BOTH (whole batch), or with needs_split _DECODE and _PREFILL, each with its slice of the
 * batch. Checks the batch against limits and features. May leave a failing backend (selection.quarantine_after), cold, on `stream`. */
ANYATTN_API int32_t anyattn_group_update(anyattn_group* group, uint32_t part, const anyattn_batch* batch, void* stream,
                                         anyattn_error* error);
ANYATTN_API int32_t anyattn_group_kv_cache_update(anyattn_group* group, const anyattn_kv_cache_update_args* args,
                                                  anyattn_error* error);
/* scratch null in args: the runtime lends the block of this stream (CPU: of this thread). Likewise below. */
ANYATTN_API int32_t anyattn_group_forward(anyattn_group* group, uint32_t part, const anyattn_forward_args* args,
                                          anyattn_error* error);
ANYATTN_API int32_t anyattn_group_forward_mqa(anyattn_group* group, const anyattn_mqa_args* args, anyattn_error* error);
ANYATTN_API int32_t anyattn_group_context_gather(anyattn_group* group, const anyattn_context_chunk* chunk,
                                                 const anyattn_context_gather_args* args, anyattn_error* error);
ANYATTN_API int32_t anyattn_group_forward_mha(anyattn_group* group, const anyattn_mha_args* args, anyattn_error* error);
ANYATTN_API int32_t anyattn_group_merge_states(anyattn_group* group, const anyattn_merge_args* args, anyattn_error* error);

/* ---- threads -------------------------------------------------------------------------------------------- */

typedef void (*anyattn_work_fn)(void* argument, uint64_t begin, uint64_t end, uint32_t worker);
/* The runtime's own fork-join pool, for an engine's CPU work between attention calls. */
ANYATTN_API int32_t anyattn_parallel_for(anyattn_runtime* runtime, uint64_t count, uint64_t grain, anyattn_work_fn fn,
                                         void* argument);
ANYATTN_API uint32_t anyattn_num_workers(const anyattn_runtime* runtime);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_RUNTIME_H */
