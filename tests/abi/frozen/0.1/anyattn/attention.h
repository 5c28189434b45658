/* SPDX-License-Identifier: Apache-2.0 */
/* What attention means here, and what a call is made of: batch (one a step) and args (one a layer).
 * Included by backends and engines. Which backend answers, and where blocks come from, is said elsewhere.
 *
 * Order      softmax_scale * (q . k) -> soft cap c * tanh(s / c) -> ALiBi -> mask -> softmax in f32 -> P . V.
 *            softmax_scale is always the model's; a backend corrects for its own cache format.
 * Position   Row i of a request stands at p = seq_len - query_len + i. Causal keeps keys j <= p (bottom-right).
 * Window     window_left = w - 1 keeps exactly w keys, the own one counted; window_right likewise to the other side
 *            where not causal; -1 is unlimited.
 * ALiBi      adds slope * (j - p). The sqrt form adds -slope * sqrt(p - j) for j <= p, else 0. The symmetric form
 *            adds -slope * |j - p|.
 * MM prefix  a key is also visible, whatever causality and window say, if row and key stand in one range.
 * Chunked    a row sees keys of its own chunk: j / chunk_size == p / chunk_size, and causality holds.
 * Sink       one more logit per query head in the denominator: no scale, no cap, no value; counted once however
 *            the keys are split.
 * LSE        f32, logarithm of the sum of exponentials, sink included, in the base args name.
 * No key     out = 0; lse = -inf, or the sink where there is one. Merging two empty states gives the same.
 * Unowned    Slots no request owns, unfilled tails, freed blocks and padded rows may hold NaN and influence nothing.
 *            Table entries wholly outside the window may be -1 and are not followed.
 * Rows       Every row of out and lse below num_tokens is written: rows of requests with seq_len 0 get 0 and -inf
 *            (the sink where there is one), rows past the last request get 0 and -inf; their slot is -1.
 * Heads      Query head h reads kv head h / (num_q_heads / num_kv_heads); any integer ratio. Offsets are 64 bits wide.
 * MLA        The cache row is [kv_c (kv_lora_rank) | k_pe (qk_rope_head_dim)], one head, one scale. Decode is MQA over
 *            it with the first kv_lora_rank entries as value; prefill is MHA on expanded k and v.
 * Shards     Context parallel (world W, rank r, interleave I): seq_lens stays global. Rank r holds
 *            I * (L / (W * I)) + clamp(L mod (W * I) - r * I, 0, I) keys; its local key l stands at position
 *            ((l / I) * W + r) * I + l mod I, which masks and ALiBi use. Sinks go with exactly one shard: the
 *            problem of the others does not set the feature. */
#ifndef ANYATTN_ATTENTION_H
#define ANYATTN_ATTENTION_H

#include "anyattn/kv_cache.h"
#include "anyattn/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bases of a log-sum-exp; as bits in a report. */
#define ANYATTN_LSE_NATURAL 1u
#define ANYATTN_LSE_BASE2 2u

/* One step's requests (vLLM: CommonAttentionMetadata). Borrowed for the call; the device arrays stay at their
 * addresses, changed only by work queued on the same stream, until the stream has passed the last call that uses the
 * metadata made of it. Device arrays are the truth; counts and maxima may be upper bounds. On the CPU device memory is
 * host memory. A field named beside a feature may be set only if the impl's problem carries that feature. */
typedef struct anyattn_batch {
  uint32_t struct_size;                /* end offset of the last field the writer knew                                */
  uint32_t num_reqs;                   /* rows of the arrays below, padding counted                                   */
  uint32_t num_tokens;                 /* rows of q, out and lse, padding counted                                     */
  uint32_t max_query_len;              /* >= every query length                                                       */
  uint32_t max_seq_len;                /* >= every seq_len                                                            */
  uint32_t shared_prefix_len;          /* leading tokens that all requests share; speed only, never the answer; 0 = none */
  const int32_t* query_start_loc;      /* [num_reqs + 1], device; non-decreasing, starts at 0                         */
  const int32_t* seq_lens;             /* [num_reqs], device; keys of the request, this step's tokens counted         */
  const int32_t* block_table;          /* [num_reqs, block_table_stride], device; kernel-block ids; null where ragged */
  int64_t block_table_stride;          /* entries from one row to the next                                            */
  const int32_t* key_start_loc;        /* [num_reqs + 1], device; rows of args.k and args.v; null where paged         */
  const int32_t* query_start_loc_host; /* [num_reqs + 1], host copy, may be null                                      */
  const int32_t* seq_lens_host;        /* [num_reqs], host copy, may be null                                          */
  const uint8_t* causal;               /* [num_reqs], device; PER_REQUEST_CAUSAL: 1 causal, 0 not; else null          */
  const int32_t* mm_prefix_start_loc;  /* [num_reqs + 1], device; MM_PREFIX: ranges of each request; else null        */
  const int32_t* mm_prefix_ranges;     /* [ranges, 2], device; first and last position, both inside; else null        */
} anyattn_batch;
#define ANYATTN_BATCH_SIZE ANYATTN_END_OFFSET(anyattn_batch, mm_prefix_ranges)

/* Stores new keys and values. Token t goes to slot_mapping[t] = block * block_size + offset; -1 is skipped. The length of
 * slot_mapping counts, not that of k. Absent slot_mapping is INVALID_ARGUMENT, never a silent nothing. */
typedef struct anyattn_kv_cache_update_args {
  uint32_t struct_size;        /* end offset of the last field the writer knew                     */
  uint32_t reserved;           /* 0                                                                */
  anyattn_tensor k;            /* [num_tokens, num_kv_heads, head_size]; absent with MLA           */
  anyattn_tensor v;            /* [num_tokens, num_kv_heads, head_size_v]; absent with MLA         */
  anyattn_tensor kv_c;         /* [num_tokens, kv_lora_rank]; MLA only                             */
  anyattn_tensor k_pe;         /* [num_tokens, qk_rope_head_dim]; MLA only                         */
  anyattn_tensor slot_mapping; /* [num_tokens] i64                                                */
  anyattn_tensor k_scale;      /* [1] or [num_kv_heads] f32; read with KV_SCALES or its PER_HEAD   */
  anyattn_tensor v_scale;      /* likewise                                                         */
  const anyattn_cache* cache;  /* borrowed                                                         */
  void* stream;                /* CUstream, hipStream_t; null is the device's default stream       */
} anyattn_kv_cache_update_args;
#define ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE ANYATTN_END_OFFSET(anyattn_kv_cache_update_args, stream)

/* One attention call of one layer. Pointers are borrowed until forward returns; device memory until the stream has passed.
 *   out[t,h] = sum_j p[t,h,j] * v[j,g(h)],  p = softmax_j(softmax_scale * <q[t,h], k[j,g(h)]>),  g(h) = h / (num_q_heads / num_kv_heads) */
typedef struct anyattn_forward_args {
  uint32_t struct_size;            /* end offset of the last field the caller knew                                */
  uint32_t lse_base;               /* one of ANYATTN_LSE_* that the report lists; read when lse is given          */
  double softmax_scale;            /* the model's, > 0                                                            */
  anyattn_tensor q;                /* [num_tokens, num_q_heads, head_size]                                        */
  anyattn_tensor k;                /* [num_keys, num_kv_heads, head_size]; absent where keys are paged            */
  anyattn_tensor v;                /* [num_keys, num_kv_heads, head_size_v]; absent where keys are paged          */
  anyattn_tensor sinks;            /* [num_q_heads] f32; SINKS                                                    */
  anyattn_tensor alibi_slopes;     /* [num_q_heads] f32; ALIBI, ALIBI_SQRT, ALIBI_SYMMETRIC                       */
  anyattn_tensor q_scale;          /* [1] or [num_kv_heads] f32; QUANTISED_QUERY                                  */
  anyattn_tensor k_scale;          /* [1] or [num_kv_heads] f32; KV_SCALES, KV_SCALES_PER_HEAD                    */
  anyattn_tensor v_scale;          /* likewise                                                                    */
  anyattn_tensor out_scale;        /* [1] f32; OUT_SCALE: stored = value / scale                                  */
  anyattn_tensor out_block_scales; /* [num_tokens, num_q_heads * head_size_v / out_block_size], out; OUT_BLOCK_SCALES */
  anyattn_tensor sparse_indices;   /* [num_tokens, top_k] i32, position in the request, -1 = absent; SPARSE_TOPK  */
  const anyattn_cache* cache;      /* borrowed; null where keys are ragged                                        */
  anyattn_tensor out;              /* [num_tokens, num_q_heads, head_size_v], out                                 */
  anyattn_tensor lse;              /* [num_tokens, num_q_heads] f32, out; LSE; may be absent                      */
  void* scratch;                   /* one block a stream (CPU: a calling thread), memory()'s scratch bytes, 256-byte aligned */
  void* stream;                    /* null is the device's default stream                                         */
} anyattn_forward_args;
#define ANYATTN_FORWARD_ARGS_SIZE ANYATTN_END_OFFSET(anyattn_forward_args, stream)

/* MLA decode: MQA over the latent cache rows. score = softmax_scale * (q_latent . kv_c + q_pe . k_pe). The two parts of q may
 * be adjacent in memory. out stays latent: the engine multiplies by W_UV. */
typedef struct anyattn_mqa_args {
  uint32_t struct_size;          /* end offset of the last field the caller knew                           */
  uint32_t lse_base;             /* as in forward                                                          */
  double softmax_scale;          /* the model's, > 0                                                       */
  anyattn_tensor q_latent;       /* [num_tokens, num_q_heads, kv_lora_rank]                                */
  anyattn_tensor q_pe;           /* [num_tokens, num_q_heads, qk_rope_head_dim]                            */
  anyattn_tensor q_scale;        /* [1] f32; QUANTISED_QUERY                                               */
  anyattn_tensor k_scale;        /* [1] f32; KV_SCALES                                                     */
  anyattn_tensor sparse_indices; /* as in forward; SPARSE_TOPK                                             */
  const anyattn_cache* cache;    /* borrowed                                                               */
  anyattn_tensor out;            /* [num_tokens, num_q_heads, kv_lora_rank], out                           */
  anyattn_tensor lse;            /* [num_tokens, num_q_heads] f32, out; LSE; may be absent                 */
  void* scratch;                 /* as in forward                                                          */
  void* stream;
} anyattn_mqa_args;
#define ANYATTN_MQA_ARGS_SIZE ANYATTN_END_OFFSET(anyattn_mqa_args, stream)

/* Which cached tokens one chunk of an MLA prefill takes: request r gives the rows_start_loc[r+1] - rows_start_loc[r] tokens
 * from position context_start[r] on (0 rows where its context is used up). Tables come from the metadata. */
typedef struct anyattn_context_chunk {
  uint32_t struct_size;         /* end offset of the last field the writer knew       */
  uint32_t num_reqs;            /* those of the metadata's batch                      */
  uint32_t num_rows;            /* rows of the whole chunk                            */
  uint32_t max_rows;            /* >= the rows of each request                        */
  const int32_t* row_start_loc; /* [num_reqs + 1], device                             */
  const int32_t* context_start; /* [num_reqs], device                                 */
} anyattn_context_chunk;
#define ANYATTN_CONTEXT_CHUNK_SIZE ANYATTN_END_OFFSET(anyattn_context_chunk, context_start)

/* Reads the rows of one chunk out of the cache, in the query's dtype, dequantised. */
typedef struct anyattn_context_gather_args {
  uint32_t struct_size;       /* end offset of the last field the caller knew   */
  uint32_t reserved;          /* 0                                              */
  anyattn_tensor k_scale;     /* [1] f32; KV_SCALES                             */
  const anyattn_cache* cache; /* borrowed                                       */
  anyattn_tensor kv_c;        /* [num_rows, kv_lora_rank], out                  */
  anyattn_tensor k_pe;        /* [num_rows, qk_rope_head_dim], out              */
  void* stream;
} anyattn_context_gather_args;
#define ANYATTN_CONTEXT_GATHER_ARGS_SIZE ANYATTN_END_OFFSET(anyattn_context_gather_args, stream)

/* MLA prefill: MHA on expanded k and v with its own offsets; no cache, no metadata. Causal is bottom-right as everywhere. */
typedef struct anyattn_mha_args {
  uint32_t struct_size; /* end offset of the last field the caller knew                    */
  uint32_t lse_base;    /* as in forward                                                   */
  double softmax_scale; /* the model's, > 0                                                */
  uint32_t num_reqs;
  uint32_t causal;                /* 1: new tokens among themselves; 0: against a context chunk      */
  uint32_t max_query_len;         /* >= every query length                                           */
  uint32_t max_key_len;           /* >= every key length                                             */
  const int32_t* query_start_loc; /* [num_reqs + 1], device                                          */
  const int32_t* key_start_loc;   /* [num_reqs + 1], device                                          */
  anyattn_tensor q;               /* [num_tokens, num_q_heads, qk_nope_head_dim + qk_rope_head_dim]  */
  anyattn_tensor k;               /* [num_keys, num_q_heads, qk_nope_head_dim + qk_rope_head_dim]    */
  anyattn_tensor v;               /* [num_keys, num_q_heads, v_head_dim]                             */
  anyattn_tensor out;             /* [num_tokens, num_q_heads, v_head_dim], out                      */
  anyattn_tensor lse;             /* [num_tokens, num_q_heads] f32, out; LSE; may be absent          */
  void* scratch;                  /* as in forward                                                   */
  void* stream;
} anyattn_mha_args;
#define ANYATTN_MHA_ARGS_SIZE ANYATTN_END_OFFSET(anyattn_mha_args, stream)

/* One partial result over part of the keys. */
typedef struct anyattn_state {
  uint32_t struct_size; /* end offset of the last field the writer knew    */
  uint32_t lse_base;    /* ANYATTN_LSE_* of this part                      */
  anyattn_tensor out;   /* [num_tokens, num_q_heads, any head size]        */
  anyattn_tensor lse;   /* [num_tokens, num_q_heads] f32; +inf reads as -inf */
} anyattn_state;
#define ANYATTN_STATE_SIZE ANYATTN_END_OFFSET(anyattn_state, lse)

/* Merges partial results over disjoint keys: out = sum_i w_i out_i / sum_i w_i, w_i = exp(lse_i - max). A part with lse = -inf
 * is not read, so its out may hold NaN. out and lse may be those of any one part (in place). */
typedef struct anyattn_merge_args {
  uint32_t struct_size;        /* end offset of the last field the caller knew           */
  uint32_t lse_base;           /* base to write lse in                                   */
  uint32_t num_states;         /* >= 1                                                   */
  uint32_t state_stride;       /* bytes from one element of states to the next           */
  const anyattn_state* states; /* [num_states], borrowed                                 */
  anyattn_tensor out;          /* [num_tokens, num_q_heads, head size of the parts], out */
  anyattn_tensor lse;          /* [num_tokens, num_q_heads] f32, out; may be absent      */
  void* stream;
} anyattn_merge_args;
#define ANYATTN_MERGE_ARGS_SIZE ANYATTN_END_OFFSET(anyattn_merge_args, stream)

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_ATTENTION_H */
