// SPDX-License-Identifier: Apache-2.0
// Runs units on the host's threads out of the lent scratch block: shares them out, joins splits.
// Included by both backends. Reads no ABI args; the callers checked them and hand over what a unit has in common.
#pragma once

#include <cstdint>

#include "anyattn/host.hpp"
#include "worklist.h"

namespace anyattn::cpu {

// Sizes one scratch block is cut by.
struct ScratchShape {
  uint32_t rows;    // of a unit
  uint32_t tokens;  // of a unit
  uint32_t head_size;
  uint32_t head_size_v;
  uint32_t max_parts;
  uint32_t num_workers;
  bool rotated;  // q is turned in scratch
};

ScratchShape scratch_shape(const Plan& plan);      // of forward and forward_mqa
ScratchShape mha_scratch_shape(const Plan& plan);  // of forward_mha
uint64_t scratch_bytes(const ScratchShape& shape);

// What all units of a call share: `unit` holds scale, cap, dtypes, strides and, in its pointers, row 0 of head 0.
struct Call {
  Unit unit{};
  AttendFn attend = nullptr;
  int64_t k_head_bytes = 0;  // from one kv head to the next
  int64_t v_head_bytes = 0;
  const float* k_scales = nullptr;  // of the call, null: 1; likewise v_scales
  const float* v_scales = nullptr;
  int64_t scale_stride = 0;  // from one kv head to the next; 0: one for all
  void* scratch = nullptr;
};

// forward, forward_mqa: every unit of the worklist and every row behind its requests.
void run_worklist(const Host& host, const Plan& plan, const Worklist& work, const Call& call);

// Requests of forward_mha.
struct MhaRequests {
  const int32_t* query_start_loc;
  const int32_t* key_start_loc;
  uint32_t count;
  bool causal;
  int64_t num_rows;  // of q and out; those past the last request are cleared
};
void run_mha(const Host& host, const Plan& plan, const MhaRequests& requests, const Call& call);

// Throws where the block is absent or not aligned to 256 bytes.
void check_scratch(const void* scratch);

}  // namespace anyattn::cpu
