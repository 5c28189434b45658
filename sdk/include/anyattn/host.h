/* SPDX-License-Identifier: Apache-2.0 */
/* What the host lends a plugin: log, threads, options, CPU facts. Included by plugins and by whoever hosts them.
 * Memory, streams and tensors come with each call, not from here. */
#ifndef ANYATTN_HOST_H
#define ANYATTN_HOST_H

#include "anyattn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ANYATTN_LOG_DEBUG 0
#define ANYATTN_LOG_INFO 1
#define ANYATTN_LOG_WARNING 2
#define ANYATTN_LOG_ERROR 3

#define ANYATTN_CPU_ARCH_OTHER 0u
#define ANYATTN_CPU_ARCH_X86_64 1u
#define ANYATTN_CPU_ARCH_AARCH64 2u

/* Instruction sets the processor has *and* the operating system saves; both are tested by the host. */
#define ANYATTN_CPU_SSE4_2 (UINT64_C(1) << 0)
#define ANYATTN_CPU_AVX2 (UINT64_C(1) << 1)
#define ANYATTN_CPU_FMA (UINT64_C(1) << 2)
#define ANYATTN_CPU_F16C (UINT64_C(1) << 3)
#define ANYATTN_CPU_AVX512 (UINT64_C(1) << 4) /* F, BW, DQ, VL and CD together */
#define ANYATTN_CPU_AVX512_BF16 (UINT64_C(1) << 5)
#define ANYATTN_CPU_AVX512_VNNI (UINT64_C(1) << 6)
#define ANYATTN_CPU_AVX512_FP16 (UINT64_C(1) << 7)
#define ANYATTN_CPU_AMX_TILE (UINT64_C(1) << 8)
#define ANYATTN_CPU_AMX_BF16 (UINT64_C(1) << 9)
#define ANYATTN_CPU_AMX_INT8 (UINT64_C(1) << 10)
#define ANYATTN_CPU_AVX512_VBMI (UINT64_C(1) << 11)
typedef struct anyattn_cpu_facts {
  uint32_t struct_size; /* end offset of the last field the writer knew */
  uint32_t arch;        /* ANYATTN_CPU_ARCH_*                           */
  uint64_t isa;         /* ANYATTN_CPU_* bits                           */
  uint32_t num_cores;   /* this process may run on                      */
  uint32_t l1d_bytes;   /* 0 = unknown, here and below                  */
  uint32_t l2_bytes;
  uint32_t l3_bytes;
} anyattn_cpu_facts;
#define ANYATTN_CPU_FACTS_SIZE ANYATTN_END_OFFSET(anyattn_cpu_facts, l3_bytes)

/* One plugin option from the configuration; values are text as written there. */
typedef struct anyattn_option {
  uint32_t struct_size; /* end offset of the last field the writer knew */
  uint32_t reserved;    /* 0                                            */
  const char* key;      /* borrowed as long as the host table           */
  const char* value;    /* borrowed as long as the host table           */
} anyattn_option;
#define ANYATTN_OPTION_SIZE ANYATTN_END_OFFSET(anyattn_option, value)

/* Handles items [begin, end) on worker `worker` < num_workers. Must not throw and must not call parallel_for. */
typedef void (*anyattn_range_fn)(void* argument, uint64_t begin, uint64_t end, uint32_t worker);

/* Lent to a plugin: valid during the call that gets it, and from impl_create until that impl is destroyed. */
typedef struct anyattn_host {
  uint32_t struct_size; /* end offset of the last field the writer knew                                  */
  uint32_t abi_version; /* negotiated; in the entry call the host's highest                              */
  void* context;        /* first argument of the functions below                                         */
  /* Required. One line of text without newline; never on the hot path; any thread. */
  void (*log)(void* context, int32_t level, const char* text);
  /* Required. Splits [0, count) into ranges of at least `grain` items (the last may be shorter) and runs them on the
   * host's threads, the caller among them; returns when all are done. No allocation, no lock that blocks another caller's
   * progress. Two items that run at once see different `worker` numbers. Status: OK, or INVALID_ARGUMENT for a null fn. */
  int32_t (*parallel_for)(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument);
  uint32_t num_workers; /* worker numbers are below it; > 0; fixed for the host's life                   */
  uint32_t num_options;
  uint32_t option_stride;        /* bytes from one element of options to the next                                 */
  uint32_t reserved;             /* 0                                                                             */
  const anyattn_option* options; /* [num_options], this plugin's, in the file's order                             */
  const anyattn_cpu_facts* cpu;  /* never null                                                                    */
} anyattn_host;
#define ANYATTN_HOST_SIZE ANYATTN_END_OFFSET(anyattn_host, cpu)

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_HOST_H */
