/* SPDX-License-Identifier: Apache-2.0 */
/* The problem: the closed list of what is asked of a backend, equal for all layers that share an impl.
 * Included by backends, the selector and engines. Holds no tensor and no length of a batch. */
#ifndef ANYATTN_PROBLEM_H
#define ANYATTN_PROBLEM_H

#include "anyattn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- features: bit n is word n / 64, bit n % 64. A backend refuses every bit it does not know. ---------- */
/* A parameter named beside a bit is read only when that bit is set, so no value doubles as "off".           */

#define ANYATTN_FEATURE_NON_CAUSAL 0u          /* every key of the request is visible to every row               */
#define ANYATTN_FEATURE_PER_REQUEST_CAUSAL 1u  /* batch.causal decides per request; excludes NON_CAUSAL          */
#define ANYATTN_FEATURE_WINDOW 2u              /* window_left, window_right                                      */
#define ANYATTN_FEATURE_SOFT_CAP 3u            /* logits_soft_cap                                                */
#define ANYATTN_FEATURE_ALIBI 4u               /* args.alibi_slopes, linear                                      */
#define ANYATTN_FEATURE_ALIBI_SQRT 5u          /* args.alibi_slopes, square root of the distance                 */
#define ANYATTN_FEATURE_ALIBI_SYMMETRIC 6u     /* args.alibi_slopes, -slope * |distance|, for encoders           */
#define ANYATTN_FEATURE_SINKS 7u               /* args.sinks                                                     */
#define ANYATTN_FEATURE_MM_PREFIX 8u           /* batch.mm_prefix_ranges: spans that see each other both ways    */
#define ANYATTN_FEATURE_SPARSE_TOPK 9u         /* top_k; args.sparse_indices                                     */
#define ANYATTN_FEATURE_CHUNKED_LOCAL 10u      /* chunk_size: a row sees the keys of its own chunk only          */
#define ANYATTN_FEATURE_CP_DECODE 11u          /* cp_world_size, cp_rank, cp_interleave; rows of decode requests */
#define ANYATTN_FEATURE_CP_PREFILL 12u         /* the same for requests of any query length                      */
#define ANYATTN_FEATURE_LSE 13u                /* args.lse is written; merge_states becomes a required slot      */
#define ANYATTN_FEATURE_BATCH_INVARIANT 14u    /* a row's bits do not depend on the other requests of its batch  */
#define ANYATTN_FEATURE_QUANTISED_QUERY 15u    /* q_dtype is 8 bits wide; args.q_scale                           */
#define ANYATTN_FEATURE_KV_SCALES 16u          /* args.k_scale, args.v_scale: one value for each tensor          */
#define ANYATTN_FEATURE_KV_SCALES_PER_HEAD 17u /* the same, one value for each kv head; excludes KV_SCALES      */
#define ANYATTN_FEATURE_OUT_SCALE 18u          /* out_dtype is 8 bits wide; args.out_scale, one value            */
#define ANYATTN_FEATURE_OUT_BLOCK_SCALES 19u   /* out_block_size; args.out_block_scales are written              */
#define ANYATTN_FEATURE_MLA 20u                /* kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim   */
#define ANYATTN_FEATURE_KV_TRANSFER 21u        /* blocks are read by another process through the spec            */
#define ANYATTN_FEATURE_GRAPH 22u              /* graph_level                                                    */
#define ANYATTN_FEATURE_COUNT 23u
#define ANYATTN_FEATURE_WORDS 1u

/* Where keys and values come from. */
#define ANYATTN_KEYS_PAGED 0u  /* from the cache, through batch.block_table                                     */
#define ANYATTN_KEYS_RAGGED 1u /* from args.k and args.v, through batch.key_start_loc (encoders, cross attention) */

/* Attention type: a label for rules; key_source and causality decide what is computed. */
#define ANYATTN_TYPE_DECODER 0u
#define ANYATTN_TYPE_ENCODER 1u
#define ANYATTN_TYPE_ENCODER_ONLY 2u
#define ANYATTN_TYPE_ENCODER_DECODER 3u

/* Which rows an impl will see. */
#define ANYATTN_PHASE_BOTH 0u
#define ANYATTN_PHASE_PREFILL 1u
#define ANYATTN_PHASE_DECODE 2u

/* Graph levels, ordered, with gaps; an unknown value is read as the next lower known one. */
#define ANYATTN_GRAPH_NEVER 0u
#define ANYATTN_GRAPH_SINGLE_TOKEN_DECODE 10u
#define ANYATTN_GRAPH_UNIFORM_BATCH 20u
#define ANYATTN_GRAPH_ALWAYS 30u

typedef struct anyattn_problem {
  uint32_t struct_size;       /* end offset of the last field the writer knew                                */
  uint32_t num_feature_words; /* words at features; words past the end read as 0                             */
  const uint64_t* features;   /* [num_feature_words], borrowed; null only with 0 words                       */
  uint32_t attention_type;    /* ANYATTN_TYPE_*                                                              */
  uint32_t key_source;        /* ANYATTN_KEYS_*                                                              */
  uint32_t phase;             /* ANYATTN_PHASE_*                                                             */
  uint32_t num_q_heads;       /* > 0                                                                         */
  uint32_t num_kv_heads;      /* > 0, divides num_q_heads; 1 with MLA                                        */
  uint32_t head_size;         /* of q and k; with MLA kv_lora_rank + qk_rope_head_dim                        */
  uint32_t head_size_v;       /* of v and out; with MLA kv_lora_rank                                         */
  uint32_t q_dtype;           /* ANYATTN_DTYPE_*; new k and v have it too, unless QUANTISED_QUERY: out_dtype */
  uint32_t out_dtype;         /* ANYATTN_DTYPE_*                                                             */
  uint32_t block_size;        /* tokens a kernel block; 0 = the backend's choice; 0 where keys are ragged    */
  const char* kv_cache_dtype; /* open text name (bfloat16, fp8_e4m3, ...), borrowed; null where ragged       */
  uint32_t kv_lora_rank;      /* MLA                                                                         */
  uint32_t qk_nope_head_dim;  /* MLA                                                                         */
  uint32_t qk_rope_head_dim;  /* MLA                                                                         */
  uint32_t v_head_dim;        /* MLA                                                                         */
  int32_t window_left;        /* WINDOW: keys to the left besides the own one; -1 = unlimited                */
  int32_t window_right;       /* WINDOW: keys to the right where not causal; -1 = unlimited                  */
  double logits_soft_cap;     /* SOFT_CAP: > 0                                                               */
  uint32_t chunk_size;        /* CHUNKED_LOCAL: tokens, > 0                                                  */
  uint32_t top_k;             /* SPARSE_TOPK: indices a row, > 0                                             */
  uint32_t cp_world_size;     /* CP_*: > 0                                                                   */
  uint32_t cp_rank;           /* CP_*: < cp_world_size                                                       */
  uint32_t cp_interleave;     /* CP_*: tokens dealt to a rank in a row, > 0                                  */
  uint32_t out_block_size;    /* OUT_BLOCK_SCALES: values a scale                                            */
  uint32_t graph_level;       /* GRAPH: the lowest ANYATTN_GRAPH_* that will do                              */
} anyattn_problem;
#define ANYATTN_PROBLEM_SIZE ANYATTN_END_OFFSET(anyattn_problem, graph_level)

/* Is feature bit `bit` set? False for bits past the words that were given. */
static inline int anyattn_problem_has(const anyattn_problem* problem, uint32_t bit) {
  return bit / 64u < problem->num_feature_words && ((problem->features[bit / 64u] >> (bit % 64u)) & 1u) != 0;
}

/* Sizes memory is reserved for; every batch stays within them. */
typedef struct anyattn_limits {
  uint32_t struct_size;        /* end offset of the last field the writer knew   */
  uint32_t max_num_reqs;       /* > 0                                            */
  uint32_t max_num_tokens;     /* query rows of a batch, > 0                     */
  uint32_t max_query_len;      /* rows of one request, > 0                       */
  uint32_t max_seq_len;        /* keys of one request, this step's counted, > 0  */
  uint32_t max_blocks_per_req; /* the block table's width; 0 where keys are ragged */
} anyattn_limits;
#define ANYATTN_LIMITS_SIZE ANYATTN_END_OFFSET(anyattn_limits, max_blocks_per_req)

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_PROBLEM_H */
