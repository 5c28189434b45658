// SPDX-License-Identifier: Apache-2.0
// What a launch of the general path is given. Included by its host code and kernels.
#pragma once

#include "params.h"
#include "sm80/work.h"

namespace anyattn::flash::sm80 {

struct Call {
  Forward f;
  Work work;
  Mask mask;
  int group, num_kv_heads, head_size, head_size_v, block_size, out_dtype;
  int alibi;       // Alibi
  float soft_cap;  // 0: none
  // The pass over a shared prefix: [token], 1 where a row takes part; out and lse of such rows hold the result of their other keys.
  const uint8_t* takes;  // null in all other calls
  // 1: the launch may begin while the one before it drains, and waits itself before it reads or writes out and lse (sm_90).
  int overlaps;

  // Something is added to or done with a scaled score.
  ANYATTN_FLASH_BOTH bool biased() const { return soft_cap != 0 || alibi != kAlibiNone; }

  // Scratch: partial result `index`, floats_each of them apart.
  ANYATTN_FLASH_BOTH float* part(int64_t index, int floats_each) const {
    return static_cast<float*>(f.scratch) + index * floats_each;
  }
};

}  // namespace anyattn::flash::sm80
