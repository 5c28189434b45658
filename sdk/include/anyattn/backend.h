/* SPDX-License-Identifier: Apache-2.0 */
/* The backend table: can you, with which cache, how much memory, and run. Included by plugins and by hosts of plugins.
 * What the numbers mean is said in attention.h. */
#ifndef ANYATTN_BACKEND_H
#define ANYATTN_BACKEND_H

#include "anyattn/attention.h"
#include "anyattn/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reasons: why a backend says no. One call of `add` for each; ids are registered in ABI.md. ---------- */

#define ANYATTN_REASON_FEATURE_UNKNOWN 1u /* a feature bit newer than the backend        */
#define ANYATTN_REASON_FEATURE 2u         /* a known feature the backend does not do     */
#define ANYATTN_REASON_HEAD_SIZE 3u       /* head_size, head_size_v, their pairing       */
#define ANYATTN_REASON_HEADS 4u           /* head counts or their ratio                  */
#define ANYATTN_REASON_DTYPE 5u           /* q_dtype, out_dtype                          */
#define ANYATTN_REASON_KV_CACHE_DTYPE 6u  /* kv_cache_dtype, or its pairing with others  */
#define ANYATTN_REASON_BLOCK_SIZE 7u
#define ANYATTN_REASON_KEY_SOURCE 8u /* paged or ragged                             */
#define ANYATTN_REASON_MLA 9u        /* MLA asked of a plain backend or the reverse */
#define ANYATTN_REASON_MLA_SIZE 10u  /* kv_lora_rank, nope, rope, v                 */
#define ANYATTN_REASON_PHASE 11u
#define ANYATTN_REASON_GRAPH_LEVEL 12u
#define ANYATTN_REASON_DEVICE 13u      /* architecture, instruction set, driver       */
#define ANYATTN_REASON_COMPILER 14u    /* needs a run-time compiler that is not there */
#define ANYATTN_REASON_COMBINATION 15u /* each alone would do, together not           */
#define ANYATTN_REASON_PARAMETER 16u   /* a feature's parameter is out of range       */
#define ANYATTN_REASON_OPTION 17u      /* a plugin option forbids it                  */
#define ANYATTN_REASON_VENDOR 0x10000u /* first id of the vendor range; texts explain */

typedef struct anyattn_reason {
  uint32_t struct_size; /* end offset of the last field the writer knew                                */
  uint32_t id;          /* ANYATTN_REASON_*                                                            */
  const char* field;    /* of the problem, of the facts, or the feature's name; borrowed for the call  */
  const char* wanted;   /* the value asked for, as text                                                */
  const char* allowed;  /* what would do, as text                                                      */
  const char* hint;     /* the nearest change that helps; may be null                                  */
} anyattn_reason;
#define ANYATTN_REASON_SIZE ANYATTN_END_OFFSET(anyattn_reason, hint)

typedef struct anyattn_reason_sink {
  uint32_t struct_size; /* end offset of the last field the writer knew */
  uint32_t reserved;    /* 0                                            */
  void* context;
  void (*add)(void* context, const anyattn_reason* reason); /* required; copies */
} anyattn_reason_sink;
#define ANYATTN_REASON_SINK_SIZE ANYATTN_END_OFFSET(anyattn_reason_sink, add)

/* ---- report: the answer of `supports` ------------------------------------------------------------------- */

#define ANYATTN_QUERY_SINGLE 1u  /* one row a request             */
#define ANYATTN_QUERY_UNIFORM 2u /* the same count for each       */
#define ANYATTN_QUERY_ANY 3u

/* Out: sized and zeroed by the caller. */
typedef struct anyattn_support_report {
  uint32_t struct_size;         /* end offset of the last field the caller knew                                   */
  uint32_t supported;           /* 1: all that was asked; 0: reasons went to the sink                             */
  uint32_t block_size;          /* the size asked for, or the preference where 0 was asked; 0 where ragged        */
  uint32_t block_size_multiple; /* kernel block sizes taken: every multiple of this; 0 = only the list below      */
  uint32_t num_block_sizes;
  uint32_t block_sizes[8];     /* [num_block_sizes]                                                              */
  uint32_t query_lengths;      /* ANYATTN_QUERY_*                                                                */
  uint32_t decode_threshold;   /* longest query that counts as decode when a batch is reordered; 0 = no opinion  */
  uint32_t graph_level;        /* ANYATTN_GRAPH_* that warmup can reach                                          */
  uint32_t lse_bases;          /* ANYATTN_LSE_* bits; 0 without the LSE feature                                  */
  uint32_t needs_host_lengths; /* 1: metadata_update reads the host copies                                       */
  double cost_hint;            /* ns for one decode row of 1,024 keys; 0 = no estimate; a hint, never a promise  */
  char kernels[256];           /* for people: which of the backend's kernels calls would run and what keeps better ones out;
                                * ends with NUL, cut where longer; empty: nothing to choose */
} anyattn_support_report;
#define ANYATTN_SUPPORT_REPORT_SIZE ANYATTN_END_OFFSET(anyattn_support_report, kernels)

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Out of `memory`: each is enough for every batch within the limits. */
typedef struct anyattn_memory {
  uint32_t struct_size;      /* end offset of the last field the caller knew                                     */
  uint32_t reserved;         /* 0                                                                                */
  uint64_t scratch_bytes;    /* device; one block a stream (CPU: a calling thread), shared by impls              */
  uint64_t persistent_bytes; /* device; one metadata's own, zeroed once by the host, address fixed               */
  uint64_t pinned_bytes;     /* pinned host; likewise                                                            */
} anyattn_memory;
#define ANYATTN_MEMORY_SIZE ANYATTN_END_OFFSET(anyattn_memory, pinned_bytes)

#define ANYATTN_METADATA_NORMAL 0u
#define ANYATTN_METADATA_FAST 1u          /* a cheaper plan for draft steps; same answer                      */
#define ANYATTN_METADATA_GRAPH_CAPTURE 2u /* launches depend on the limits, never on the batch                */

typedef struct anyattn_impl anyattn_impl;         /* opaque; a backend made ready for one problem on one device   */
typedef struct anyattn_metadata anyattn_metadata; /* opaque; what an impl makes of a batch, once a step           */

/* Receives one accepted spec; copies it. */
typedef void (*anyattn_spec_fn)(void* context, const anyattn_kv_cache_spec* spec);

/* ---- backend -------------------------------------------------------------------------------------------- */

/* One attention implementation on one device kind. Either `forward` is present, or (MLA) forward_mqa, context_gather and
 * forward_mha are, never both. Every function returns a status and fills `error`; destroy functions return nothing and
 * accept null. Threads: supports, kv_cache_spec and memory from any thread; after warmup any number of threads may call the
 * hot slots on one impl, each with its own stream and scratch; one metadata is updated by one thread while none reads it. */
typedef struct anyattn_backend {
  uint32_t struct_size;    /* end offset of the last field the writer knew                       */
  uint32_t device_kind;    /* ANYATTN_DEVICE_*                                                   */
  const char* name;        /* [A-Z][A-Z0-9_]*, unique in the plugin for a kind; lives for ever   */
  const char* description; /* one line for people; may be null                                   */

  /* Required. Needs no device, changes nothing. OK with report->supported 0 and reasons is the ordinary "no". */
  int32_t (*supports)(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                      const anyattn_reason_sink* reasons, anyattn_support_report* report, anyattn_error* error);
  /* Required where keys are paged. Calls accept once for each spec, best first; problem->block_size is set. */
  int32_t (*kv_cache_spec)(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                           anyattn_spec_fn accept, void* context, anyattn_error* error);
  /* Required. spec: one that was accepted, copied; null where keys are ragged. host stays valid until impl_destroy. */
  int32_t (*impl_create)(const anyattn_host* host, const anyattn_device_facts* device, const anyattn_problem* problem,
                         const anyattn_kv_cache_spec* spec, anyattn_impl** impl, anyattn_error* error);
  void (*impl_destroy)(anyattn_impl* impl); /* required */
  /* Required. */
  int32_t (*memory)(const anyattn_impl* impl, const anyattn_limits* limits, anyattn_memory* memory, anyattn_error* error);
  /* Required. Compiles, loads and sets everything calls will need; reports the graph level reached. */
  int32_t (*warmup)(anyattn_impl* impl, const anyattn_limits* limits, void* stream, void* scratch, uint32_t* graph_level,
                    anyattn_error* error);
  /* Required. persistent and pinned: memory()'s sizes for these limits, borrowed until metadata_destroy. */
  int32_t (*metadata_create)(anyattn_impl* impl, const anyattn_limits* limits, uint32_t mode, void* persistent, void* pinned,
                             anyattn_metadata** metadata, anyattn_error* error);
  /* Required. Hot: no allocation, no wait. Rewrites the persistent block with work queued on the stream. */
  int32_t (*metadata_update)(anyattn_metadata* metadata, const anyattn_batch* batch, void* stream, anyattn_error* error);
  void (*metadata_destroy)(anyattn_metadata* metadata); /* required */
  /* Required where keys are paged. Hot. */
  int32_t (*kv_cache_update)(anyattn_impl* impl, const anyattn_kv_cache_update_args* args, anyattn_error* error);
  /* Plain backends: required. MLA: null. Hot; never writes the cache. */
  int32_t (*forward)(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_forward_args* args,
                     anyattn_error* error);
  /* MLA: required. Plain backends: null. Hot. */
  int32_t (*forward_mqa)(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_mqa_args* args,
                         anyattn_error* error);
  int32_t (*context_gather)(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_context_chunk* chunk,
                            const anyattn_context_gather_args* args, anyattn_error* error);
  int32_t (*forward_mha)(anyattn_impl* impl, const anyattn_mha_args* args, anyattn_error* error);
  /* Required of a backend whose supports takes the LSE feature; else null. Hot. */
  int32_t (*merge_states)(anyattn_impl* impl, const anyattn_merge_args* args, anyattn_error* error);
  /* Optional; absent: the host calls metadata_update instead. Makes `to` what metadata_update would make of `from`'s batch
   * with another block table. Hot. */
  int32_t (*update_block_table)(anyattn_metadata* to, const anyattn_metadata* from, const int32_t* block_table,
                                int64_t block_table_stride, void* stream, anyattn_error* error);
} anyattn_backend;
#define ANYATTN_BACKEND_SIZE ANYATTN_END_OFFSET(anyattn_backend, update_block_table)

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_BACKEND_H */
