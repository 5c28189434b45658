/* SPDX-License-Identifier: Apache-2.0 */
/* Planning one step: order of the batch, decode and prefill parts, MLA context chunks, sharded keys, block sizes, graph level.
 * Included by engines. Pure functions over host arrays of the caller: no runtime, no device, no allocation, no state. */
#ifndef ANYATTN_STEP_H
#define ANYATTN_STEP_H

#include "anyattn/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decode and prefill --------------------------------------------------------------------------------- */

/* The threshold all groups of a batch can live with: the smallest; 0 means no opinion, and 1 is returned where none has one. */
ANYATTN_API uint32_t anyattn_step_decode_threshold(const uint32_t* thresholds, uint32_t num_groups);

typedef struct anyattn_step_split {
  uint32_t struct_size; /* end offset of the last field the caller knew */
  uint32_t num_decode_reqs;
  uint32_t num_prefill_reqs;
  uint32_t num_decode_tokens;
  uint32_t num_prefill_tokens;
} anyattn_step_split;
#define ANYATTN_STEP_SPLIT_SIZE ANYATTN_END_OFFSET(anyattn_step_split, num_prefill_tokens)

/* order: [num_reqs] out, the batch's rows with decodes (query length <= threshold) first, both parts in their old order.
 * query_lengths: ANYATTN_QUERY_* of the decode backend: with SINGLE only rows of one token are decode, with UNIFORM only those
 * as long as the first decode; rows of length 0 (padding) are decode with all three. */
ANYATTN_API int32_t anyattn_step_order(const int32_t* query_lens, uint32_t num_reqs, uint32_t threshold, uint32_t query_lengths,
                                       uint32_t* order, anyattn_step_split* split, anyattn_error* error);

/* The part (ANYATTN_PHASE_DECODE or _PREFILL; _BOTH copies) of an ordered batch. prefill_query_start_loc: device array
 * [num_prefill_reqs + 1] that starts at 0 (anyattn_step_rebase made its values), and its host copy, which may be null; unused
 * for the other parts. Rows of q and out of the prefill part begin at num_decode_tokens. Maxima are exact where the batch has
 * host copies. *out and *split are sized by the caller. */
ANYATTN_API int32_t anyattn_step_slice(const anyattn_batch* batch, const anyattn_step_split* split, uint32_t part,
                                       const int32_t* prefill_query_start_loc, const int32_t* prefill_query_start_loc_host,
                                       anyattn_batch* out, anyattn_error* error);
/* out[i] = start_loc[first + i] - start_loc[first] for i in [0, count]. */
ANYATTN_API void anyattn_step_rebase(const int32_t* start_loc, uint32_t first, uint32_t count, int32_t* out);

/* ---- MLA prefill over a cached context ------------------------------------------------------------------ */

/* Rows a context workspace should have: enough for 8 longest requests or 4 blocks a request, at most 65,536, and at least one
 * block a request. */
ANYATTN_API uint64_t anyattn_step_context_workspace(const anyattn_limits* limits, uint32_t block_size);

/* Chunks that num_reqs contexts need: ceil(total / workspace_rows). By the total, not by the longest request. */
ANYATTN_API uint32_t anyattn_step_context_num_chunks(const int32_t* context_lens, uint32_t num_reqs, uint32_t workspace_rows);

/* The chunk plan, filled front to back: every chunk but the last has exactly workspace_rows rows. Chunk c is
 * row_start_loc[c * (num_reqs + 1) ...] and context_start[c * num_reqs ...], the arrays of anyattn_context_chunk; a request
 * whose context is used up (or not begun) has 0 rows there. chunk_rows, chunk_max_rows: [num_chunks], out. max_chunks: room in
 * the arrays; too little is OUT_OF_MEMORY with the number needed. */
ANYATTN_API int32_t anyattn_step_context_plan(const int32_t* context_lens, uint32_t num_reqs, uint32_t workspace_rows,
                                              uint32_t max_chunks, int32_t* row_start_loc, int32_t* context_start,
                                              uint32_t* chunk_rows, uint32_t* chunk_max_rows, uint32_t* num_chunks,
                                              anyattn_error* error);

/* ---- sharded keys (context parallel) -------------------------------------------------------------------- */

/* Keys of a request of seq_len tokens that rank `rank` of `world` holds, dealt `interleave` at a time. 0 on nonsense. */
ANYATTN_API int32_t anyattn_step_cp_local_len(int32_t seq_len, uint32_t world, uint32_t rank, uint32_t interleave);
/* Global position of local key `local`: where masks and ALiBi see it. */
ANYATTN_API int64_t anyattn_step_cp_position(int64_t local, uint32_t world, uint32_t rank, uint32_t interleave);
/* Slots on this rank of tokens at [start, start + count): a manager block spans block_size * world positions; -1 where another
 * rank holds the token. interleave divides block_size. block_row: [num_blocks] manager blocks of the request. */
ANYATTN_API int32_t anyattn_step_cp_slot_mapping(const int32_t* block_row, uint32_t num_blocks, uint32_t block_size,
                                                 uint32_t world, uint32_t rank, uint32_t interleave, int64_t start,
                                                 uint32_t count, int64_t* out, anyattn_error* error);
/* Prefill rows dealt in 2 * world chunks of ceil(num_tokens / (2 * world)): this rank takes chunk `rank` and chunk
 * 2 * world - 1 - rank, so that each has an early and a late one. rows: [2 * chunk] out, -1 beyond num_tokens. Returns the
 * number of entries, 2 * chunk; rows may be null to ask for it. */
ANYATTN_API uint32_t anyattn_step_cp_head_tail_rows(uint32_t num_tokens, uint32_t world, uint32_t rank, int32_t* rows);

/* ---- block sizes and graphs ----------------------------------------------------------------------------- */

/* out[i * ratio + j] = blocks[i] * ratio + j (-1 stays -1), ratio = manager_block_size / kernel_block_size. A ratio that is no
 * whole number is INVALID_ARGUMENT naming both sizes. out: [num_blocks * ratio]. */
ANYATTN_API int32_t anyattn_step_expand_blocks(const int32_t* blocks, uint32_t num_blocks, uint32_t manager_block_size,
                                               uint32_t kernel_block_size, int32_t* out, anyattn_error* error);

/* The graph level all groups reach: the minimum, unknown values read as the next lower known one. *lowered_by: index of the first
 * group with that level, num_groups where there is none. */
ANYATTN_API uint32_t anyattn_step_graph_level(const uint32_t* levels, uint32_t num_groups, uint32_t* lowered_by);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_STEP_H */
