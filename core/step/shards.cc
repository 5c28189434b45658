// SPDX-License-Identifier: Apache-2.0
// Keys and rows dealt to the ranks of a context-parallel group. The rule of lengths and positions is attention.h's (Shards).
#include <algorithm>

#include "anyattn/step.h"
#include "anyattn/util.h"

namespace {

// Products of two such numbers stay within 64 bits.
bool is_deal(uint32_t world, uint32_t rank, uint32_t interleave) {
  return rank < world && world <= INT32_MAX && interleave > 0 && interleave <= INT32_MAX;
}

}  // namespace

extern "C" {

int32_t anyattn_step_cp_local_len(int32_t seq_len, uint32_t world, uint32_t rank, uint32_t interleave) {
  if (seq_len <= 0 || !is_deal(world, rank, interleave)) return 0;
  const int64_t round = int64_t{world} * interleave;
  const int64_t rest = seq_len % round - int64_t{rank} * interleave;
  return static_cast<int32_t>(seq_len / round * interleave + std::clamp<int64_t>(rest, 0, interleave));
}

int64_t anyattn_step_cp_position(int64_t local, uint32_t world, uint32_t rank, uint32_t interleave) {
  if (!is_deal(world, rank, interleave)) return 0;
  return (local / interleave * world + rank) * interleave + local % interleave;
}

int32_t anyattn_step_cp_slot_mapping(const int32_t* block_row, uint32_t num_blocks, uint32_t block_size, uint32_t world,
                                     uint32_t rank, uint32_t interleave, int64_t start, uint32_t count, int64_t* out,
                                     anyattn_error* error) {
  if (block_size == 0 || block_size > INT32_MAX || !is_deal(world, rank, interleave) || block_size % interleave != 0) {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "step: cp_slot_mapping with block_size %u, world %u, rank %u, interleave %u; rank is below world and "
        "interleave divides block_size",
        block_size, world, rank, interleave);
  }
  const int64_t span = int64_t{block_size} * world;
  if (start < 0 || (count > 0 && (!block_row || !out || (start + count - 1) / span >= num_blocks))) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "step: cp_slot_mapping of %u tokens from position %lld; the row's %u blocks hold %lld positions",
                             count, static_cast<long long>(start), num_blocks, static_cast<long long>(num_blocks) * span);
  }
  const int64_t round = int64_t{world} * interleave;
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t position = start + i;
    const int64_t offset = position % span;
    const bool mine = offset / interleave % world == rank;
    const int64_t block = block_row[position / span];
    const bool present = mine && block >= 0;
    out[i] = present ? block * block_size + offset / round * interleave + offset % interleave : -1;
  }
  return ANYATTN_OK;
}

uint32_t anyattn_step_cp_head_tail_rows(uint32_t num_tokens, uint32_t world, uint32_t rank, int32_t* rows) {
  if (rank >= world) return 0;
  const uint64_t chunks = 2 * uint64_t{world};
  const auto chunk = static_cast<uint32_t>(num_tokens / chunks + (num_tokens % chunks != 0));
  if (!rows) return 2 * chunk;
  const uint64_t own[2] = {rank, chunks - 1 - rank};
  for (uint32_t half = 0; half < 2; ++half) {
    for (uint32_t i = 0; i < chunk; ++i) {
      const uint64_t row = own[half] * chunk + i;
      rows[half * chunk + i] = row < num_tokens ? static_cast<int32_t>(row) : -1;
    }
  }
  return 2 * chunk;
}

}  // extern "C"
