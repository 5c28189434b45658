// SPDX-License-Identifier: Apache-2.0
// What moves rows without attention: the cache's store, the merge of an engine's partial results. Included by plugins' host code;
// memory.cu is compiled into each plugin that uses it. Pointers are device memory; both functions queue one launch and throw Error.
#pragma once

#include <cstdint>

namespace anyattn::cuda {

// Rows of one tensor of new keys or values, and where they go in a block.
struct StoredRows {
  const char* from;  // [token, head, element] of 16 bits, rows aligned to 16 bytes
  int64_t from_token_bytes, from_head_bytes;
  int64_t byte_offset, token_bytes, head_bytes;  // of the plane
  int32_t heads, head_size;                      // head_size: a multiple of 8
  const float* scales;                           // e4m3: stored = value / scale, [1] or [heads]; null: 1
};

struct Store {
  StoredRows rows[2];
  char* base;
  int64_t block_bytes;
  uint64_t num_blocks;
  const int64_t* slots;  // [num_tokens], block * block_size + offset; -1 and what lies past the blocks is skipped
  int32_t num_tokens, block_size;
  uint32_t dtype;           // ANYATTN_DTYPE_* of the rows: float16 or bfloat16
  int32_t to_e4m3;          // 1: the cache holds codes, rounded to nearest even, saturated; 0: the rows as they are
  int32_t scales_per_head;  // 1: scales are [heads]
};
void store_rows(const Store& store, void* stream);

inline constexpr int kMaxStates = 16;

// One partial result. Strides of out in bytes, of lse in elements.
struct State {
  const char* out;
  int64_t token_bytes, head_bytes;
  const float* lse;
  int64_t lse_token_stride, lse_head_stride;
  double to_natural;  // factor of the lse's base
};

struct Merge {
  State states[kMaxStates];
  int32_t num_states;
  uint32_t dtype, out_dtype;  // ANYATTN_DTYPE_* of the parts, of out: float32, float16, bfloat16
  int32_t num_tokens, num_heads, head_size;
  char* out;
  int64_t token_bytes, head_bytes;
  float* lse;  // null: not wanted
  int64_t lse_token_stride, lse_head_stride;
  double from_natural;
};
void merge_states(const Merge& merge, void* stream);

}  // namespace anyattn::cuda
