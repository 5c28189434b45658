// SPDX-License-Identifier: Apache-2.0
// Manager blocks to kernel blocks, for engines with a block manager of their own.
#include "anyattn/step.h"
#include "anyattn/util.h"

extern "C" int32_t anyattn_step_expand_blocks(const int32_t* blocks, uint32_t num_blocks, uint32_t manager_block_size,
                                              uint32_t kernel_block_size, int32_t* out, anyattn_error* error) {
  if (kernel_block_size == 0 || manager_block_size == 0 || manager_block_size % kernel_block_size != 0) {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "step: expand_blocks: manager block %u is no whole number of kernel blocks of %u; allowed: multiples of %u",
        manager_block_size, kernel_block_size, kernel_block_size);
  }
  if (num_blocks > 0 && (!blocks || !out)) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: expand_blocks without %s", blocks ? "a place" : "blocks");
  }
  const int64_t ratio = manager_block_size / kernel_block_size;
  for (uint32_t i = 0; i < num_blocks; ++i) {
    if (blocks[i] >= 0 && (blocks[i] + int64_t{1}) * ratio - 1 > INT32_MAX) {
      return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: expand_blocks: block %d times ratio %lld leaves 32 bits",
                               blocks[i], static_cast<long long>(ratio));
    }
    for (int64_t j = 0; j < ratio; ++j) out[i * ratio + j] = blocks[i] < 0 ? -1 : static_cast<int32_t>(blocks[i] * ratio + j);
  }
  return ANYATTN_OK;
}
