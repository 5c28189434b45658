// SPDX-License-Identifier: Apache-2.0
// What the kernel of the Hopper prefill reads. Included by the kernel and its host side.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "flash_cuda/params.h"

namespace anyattn::flash {

// One row tile of one request; every head does it. 32 bytes, read as two vectors.
struct alignas(32) PrefillWork {
  int32_t token, tokens;  // rows of q: first, number
  int32_t position;       // of the first one in its request
  int32_t seq_len;        // keys of the request; 0: none visible
  int32_t keys;           // first row of k where ragged; the request, a row of the table, where paged; -1: rows no request owns
  int32_t right;          // a token at p sees no key past p + right
  int32_t first_tile, end_tile;  // key tiles to walk, from the last one down; equal: none visible
};

struct PrefillHeader {
  int32_t count;          // works, which follow
  int32_t section_heads;  // row groups that are dealt together: their K and V stay in L2
  int32_t reserved[6];    // so that works are aligned
};

inline constexpr int kFar = 1 << 30;  // past every position

struct PrefillMaps {
  CUtensorMap q;     // [token][head][element], box [q_tokens][pack][64]
  CUtensorMap k, v;  // [block][kv head][slot][element], box [1][1][box_rows][64]; ragged: one block
};

struct PrefillArgs {
  const PrefillHeader* header;
  const Batch* kept;
  int heads;     // row groups: num_q_heads / pack
  int pack;      // query heads a token in a row tile, divides num_q_heads / num_kv_heads
  int kv_ratio;  // row groups a kv head
  int q_tokens;  // tokens a row tile: rows / pack
  int head_size_v;
  int window_left;                 // kFar: unlimited
  int block_size;                  // 0: ragged
  int box_rows;                    // rows a copy of K or V: a divisor of block_size and keys; keys where ragged
  int num_blocks;                  // a table entry outside [0, num_blocks) reads as zeros
  float scale_log2;                // softmax_scale * log2(e); with a soft cap: soft_cap * log2(e)
  float cap_log2;                  // 2 * log2(e) * softmax_scale / soft_cap; 0: no soft cap
  const float* q_scale;            // codes: [1] or [num_kv_heads] f32
  const float *k_scale, *v_scale;  // codes: [1] or [num_kv_heads] f32; null: 1
  int q_scales_per_head, kv_scales_per_head;
  int out_dtype;                              // Dtype: kF16 or kBF16; codes read it
  const float* sinks;                         // [num_q_heads] f32; null: none
  Rows out;                                   // [token, num_q_heads, head_size_v]
  float* lse;                                 // [token, num_q_heads] f32; null: not wanted
  int64_t lse_token_stride, lse_head_stride;  // elements
  float lse_factor;                           // times the natural logarithm
};

}  // namespace anyattn::flash
