/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache as both sides see it: a spec (how one block is laid out) and a cache (where blocks are).
 * Included by backends and by whoever owns the memory. Says nothing about which request owns which block. */
#ifndef ANYATTN_KV_CACHE_H
#define ANYATTN_KV_CACHE_H

#include "anyattn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Plane roles. The logical order of a plane's dims is fixed by its role; the strides say how they lie in memory. */
#define ANYATTN_PLANE_K 1u            /* [num_blocks, block_size, num_kv_heads, head_size]                              */
#define ANYATTN_PLANE_V 2u            /* [num_blocks, block_size, num_kv_heads, head_size_v]                            */
#define ANYATTN_PLANE_K_SCALE 3u      /* [num_blocks, block_size, num_kv_heads] f32                                     */
#define ANYATTN_PLANE_V_SCALE 4u      /* [num_blocks, block_size, num_kv_heads] f32                                     */
#define ANYATTN_PLANE_LATENT 5u       /* [num_blocks, block_size, kv_lora_rank + qk_rope_head_dim]: kv_c, then k_pe     */
#define ANYATTN_PLANE_LATENT_C 6u     /* [num_blocks, block_size, kv_lora_rank], where it is stored apart from k_pe     */
#define ANYATTN_PLANE_LATENT_PE 7u    /* [num_blocks, block_size, qk_rope_head_dim]                                    */
#define ANYATTN_PLANE_LATENT_SCALE 8u /* [num_blocks, block_size, kv_lora_rank / values a scale] f32                */
#define ANYATTN_PLANE_MAX_DIMS 5

typedef struct anyattn_plane {
  uint32_t struct_size;                    /* end offset of the last field the writer knew                           */
  uint32_t role;                           /* ANYATTN_PLANE_*                                                        */
  uint32_t dtype;                          /* ANYATTN_DTYPE_*; 4-bit values are UINT8 with half the last dim         */
  uint32_t ndim;                           /* dims used below, the block dimension counted                           */
  int64_t dims[ANYATTN_PLANE_MAX_DIMS];    /* dims[0] is 0: as many blocks as the host has                           */
  int64_t strides[ANYATTN_PLANE_MAX_DIMS]; /* in bytes; strides[0] = the spec's block_bytes, the host may enlarge it */
  uint64_t byte_offset;                    /* of the plane's first element from the start of its block               */
} anyattn_plane;
#define ANYATTN_PLANE_SIZE ANYATTN_END_OFFSET(anyattn_plane, byte_offset)

typedef struct anyattn_kv_cache_spec {
  uint32_t struct_size;        /* end offset of the last field the writer knew                            */
  uint32_t block_size;         /* tokens a kernel block                                                   */
  uint64_t block_bytes;        /* bytes a block; a multiple of alignment                                  */
  uint32_t alignment;          /* of the base and of the block stride, bytes; at least 16                 */
  uint32_t num_planes;         /* > 0                                                                     */
  uint32_t plane_stride;       /* bytes from one element of planes to the next                            */
  uint32_t reserved;           /* 0                                                                       */
  const anyattn_plane* planes; /* [num_planes], borrowed as long as the spec                              */
  const char* name;            /* of the layout, for people and rules (HND, NHD, latent ...), borrowed    */
  uint64_t digest;             /* anyattn_kv_cache_spec_digest(); equal digests read each other's blocks   */
} anyattn_kv_cache_spec;
#define ANYATTN_KV_CACHE_SPEC_SIZE ANYATTN_END_OFFSET(anyattn_kv_cache_spec, digest)

/* One layer's blocks. Block b starts at base + b * block_stride_bytes; offsets are 64 bits wide. Block 0 is an
 * ordinary block. Slots that no request owns may hold anything, NaN included. */
typedef struct anyattn_cache {
  uint32_t struct_size;        /* end offset of the last field the writer knew             */
  uint32_t reserved;           /* 0                                                        */
  void* base;                  /* device memory, borrowed, aligned to 256 bytes            */
  uint64_t block_stride_bytes; /* >= spec->block_bytes, a multiple of spec->alignment      */
  uint64_t num_blocks;
  const anyattn_kv_cache_spec* spec; /* the spec the impl was created with; digest is compared   */
} anyattn_cache;
#define ANYATTN_CACHE_SIZE ANYATTN_END_OFFSET(anyattn_cache, spec)

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_KV_CACHE_H */
