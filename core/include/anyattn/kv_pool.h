/* SPDX-License-Identifier: Apache-2.0 */
/* The paged KV cache of one device: which request owns which blocks, for several groups of layers under one budget.
 * Included by engines. Knows no kernel; it sees a group's cache spec only, and never reads or writes a cached value.
 *
 * Blocks     A manager block is a whole number of kernel blocks and holds them for every layer of its group. All handed-out
 *            ids are kernel-block ids (manager block m of ratio n gives m*n .. m*n+n-1): what tables and slots count.
 * Budget     Memory is cut into pages of equal size; a page belongs to one group at a time and holds a whole number of its
 *            manager blocks, so groups with unlike block bytes share one budget and take from each other as load changes.
 * Sharing    A full manager block whose tokens are computed is found again by its content and everything before it (128-bit
 *            chained hash, per salt). Shared blocks are counted; unreferenced ones stay findable until their memory is needed,
 *            least recently used first.
 * Windows    Blocks wholly behind a group's window are given back at commit; their table entries become -1.
 * Threads    One pool is used by one thread at a time. begin, append, reserve, commit, release, block_table, slot_mapping and
 *            get_stats do not allocate. */
#ifndef ANYATTN_KV_POOL_H
#define ANYATTN_KV_POOL_H

#include "anyattn/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct anyattn_kv_pool anyattn_kv_pool;

typedef struct anyattn_kv_group_options {
  uint32_t struct_size;              /* end offset of the last field the caller knew                            */
  uint32_t num_layers;               /* with cache memory of their own (not those that share another's), > 0    */
  uint32_t block_size;               /* tokens a manager block, a multiple of spec->block_size; 0 = the spec's  */
  int32_t window_left;               /* as in the problem; -1 = unlimited                                       */
  const anyattn_kv_cache_spec* spec; /* of the group (anyattn_group_info.spec); copied                          */
  const char* label;                 /* the layer kind, for texts; copied; may be null                          */
} anyattn_kv_group_options;
#define ANYATTN_KV_GROUP_OPTIONS_SIZE ANYATTN_END_OFFSET(anyattn_kv_group_options, label)

typedef struct anyattn_kv_pool_options {
  uint32_t struct_size;  /* end offset of the last field the caller knew                              */
  uint32_t num_groups;   /* > 0                                                                       */
  uint32_t group_stride; /* bytes from one element of groups to the next                              */
  uint32_t device_kind;  /* ANYATTN_DEVICE_*                                                          */
  int32_t device_ordinal;
  uint32_t max_num_reqs;                  /* requests held at once, > 0                                                */
  uint32_t max_seq_len;                   /* tokens of one request, > 0                                                */
  uint32_t no_sharing;                    /* 1: no block is ever found by content                                      */
  const anyattn_kv_group_options* groups; /* [num_groups], borrowed for the call                                       */
  uint64_t budget_bytes;                  /* device memory to take; 0 = num_blocks decides                             */
  uint64_t num_blocks;                    /* budget as a count of the largest group's manager blocks; 0 = budget_bytes */
} anyattn_kv_pool_options;
#define ANYATTN_KV_POOL_OPTIONS_SIZE ANYATTN_END_OFFSET(anyattn_kv_pool_options, num_blocks)

/* Takes the memory. Exactly one of budget_bytes and num_blocks is given. The runtime outlives the pool. */
ANYATTN_API int32_t anyattn_kv_pool_create(anyattn_runtime* runtime, const anyattn_kv_pool_options* options,
                                           anyattn_kv_pool** pool, anyattn_error* error);
ANYATTN_API void anyattn_kv_pool_destroy(anyattn_kv_pool* pool); /* no call that reads the cache is under way */

/* Where the blocks of one layer are: args.cache. *cache is sized by the caller; its spec lives as long as the pool. */
ANYATTN_API int32_t anyattn_kv_pool_layer_cache(const anyattn_kv_pool* pool, uint32_t group, uint32_t layer,
                                                anyattn_cache* cache, anyattn_error* error);

/* Width that a block table of this group needs: kernel blocks of max_seq_len tokens. 0 for a group that is not there. */
ANYATTN_API uint32_t anyattn_kv_pool_max_blocks_per_req(const anyattn_kv_pool* pool, uint32_t group);

/* ---- requests: `request` is the caller's number, unique among those held -------------------------------- */

/* Takes a request in with the token ids known so far, and the longest prefix that every group still holds. *cached_tokens:
 * tokens that need no computing; always fewer than num_tokens. salt: requests with unlike salts share nothing (tenant, adapter).
 * MEMORY_NOT_NOW when max_num_reqs requests are held. */
ANYATTN_API int32_t anyattn_kv_pool_begin(anyattn_kv_pool* pool, uint64_t request, const int32_t* token_ids,
                                          uint32_t num_tokens, uint64_t salt, uint32_t* cached_tokens, anyattn_error* error);
/* More token ids, behind those known: generated ones. Tokens never named can be computed but not shared. */
ANYATTN_API int32_t anyattn_kv_pool_append(anyattn_kv_pool* pool, uint64_t request, const int32_t* token_ids,
                                           uint32_t num_tokens, anyattn_error* error);
/* Makes room for the first total_tokens tokens in every group, or changes nothing: MEMORY_NOT_NOW with the numbers, or
 * OUT_OF_MEMORY where it would not fit into the empty pool. */
ANYATTN_API int32_t anyattn_kv_pool_reserve(anyattn_kv_pool* pool, uint64_t request, uint32_t total_tokens,
                                            anyattn_error* error);
/* The first computed_tokens tokens are in the cache (or queued on the stream that later calls use): full blocks become
 * findable, blocks wholly behind a window are given back. */
ANYATTN_API int32_t anyattn_kv_pool_commit(anyattn_kv_pool* pool, uint64_t request, uint32_t computed_tokens,
                                           anyattn_error* error);
/* Gives every block back; findable ones stay so while memory allows. Finish and preemption alike. */
ANYATTN_API int32_t anyattn_kv_pool_release(anyattn_kv_pool* pool, uint64_t request, anyattn_error* error);

/* ---- what a batch needs --------------------------------------------------------------------------------- */

/* Rows of `requests` in that order into host memory [num_reqs, stride]. Entries past a request's blocks are left as they are;
 * those behind the window are -1. */
ANYATTN_API int32_t anyattn_kv_pool_block_table(const anyattn_kv_pool* pool, uint32_t group, const uint64_t* requests,
                                                uint32_t num_reqs, int32_t* out, int64_t stride, anyattn_error* error);
/* Slots of tokens [start, start + count) of one request: block * block_size + offset. They must be reserved and in the window. */
ANYATTN_API int32_t anyattn_kv_pool_slot_mapping(const anyattn_kv_pool* pool, uint32_t group, uint64_t request, uint32_t start,
                                                 uint32_t count, int64_t* out, anyattn_error* error);

/* ---- figures -------------------------------------------------------------------------------------------- */

typedef struct anyattn_kv_pool_stats {
  uint32_t struct_size; /* end offset of the last field the caller knew                                  */
  uint32_t num_reqs;    /* held now                                                                      */
  uint64_t pool_bytes;  /* taken from the device                                                         */
  uint64_t page_bytes;
  uint64_t total_pages;
  uint64_t used_pages;   /* with a block that a request holds                                             */
  uint64_t cached_pages; /* held by none, with findable blocks                                            */
  uint64_t peak_used_pages;
  uint64_t used_bytes;     /* of blocks that requests hold, each counted once                               */
  uint64_t begun_tokens;   /* token ids given to begin, in all                                              */
  uint64_t reused_tokens;  /* of these found in the cache                                                   */
  uint64_t evicted_blocks; /* findable blocks whose memory was taken                                        */
} anyattn_kv_pool_stats;
#define ANYATTN_KV_POOL_STATS_SIZE ANYATTN_END_OFFSET(anyattn_kv_pool_stats, evicted_blocks)

ANYATTN_API int32_t anyattn_kv_pool_get_stats(const anyattn_kv_pool* pool, anyattn_kv_pool_stats* stats, anyattn_error* error);

/* One group's share. */
typedef struct anyattn_kv_group_stats {
  uint32_t struct_size;       /* end offset of the last field the caller knew                           */
  uint32_t block_size;        /* tokens a manager block                                                 */
  uint32_t kernel_block_size; /* tokens a kernel block                                                  */
  uint32_t blocks_per_page;   /* manager blocks                                                         */
  uint64_t block_bytes;       /* a manager block with all its layers and padding                        */
  uint64_t max_blocks;        /* manager blocks, were the whole pool this group's                       */
  uint64_t used_blocks;       /* held by requests                                                       */
  uint64_t cached_blocks;     /* held by none, findable                                                 */
  const char* label;          /* lives as long as the pool                                              */
} anyattn_kv_group_stats;
#define ANYATTN_KV_GROUP_STATS_SIZE ANYATTN_END_OFFSET(anyattn_kv_group_stats, label)

ANYATTN_API int32_t anyattn_kv_pool_get_group_stats(const anyattn_kv_pool* pool, uint32_t group, anyattn_kv_group_stats* stats,
                                                    anyattn_error* error);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_KV_POOL_H */
