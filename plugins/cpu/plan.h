// SPDX-License-Identifier: Apache-2.0
// The one decision of both backends: what a problem needs, whether it is done here, and everything a launch must know.
// Stands behind supports, memory and the calls alike.
#pragma once

#include <cstdint>

#include "anyattn/host.hpp"
#include "anyattn/problem.hpp"
#include "formats.h"
#include "kernel.h"

namespace anyattn::cpu {

enum class Family { kPlain, kMla };

inline constexpr uint32_t kMaxHeadSize = 576;
inline constexpr uint32_t kPreferredBlockSize = 64;  // one tile: its keys of one head lie in one run

struct Plan {
  const Kernels* kernels = nullptr;
  uint64_t features = 0;  // word 0
  bool ragged = false;
  uint32_t num_q_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_size = 0;
  uint32_t head_size_v = 0;
  uint32_t kv_lora_rank = 0;
  uint32_t rope = 0;
  uint32_t mha_head_size = 0;    // MLA: nope + rope
  uint32_t mha_head_size_v = 0;  // MLA: v_head_dim
  uint32_t block_size = 0;
  uint32_t q_dtype = 0, out_dtype = 0;  // ANYATTN_DTYPE_*
  RowFormat kernel_rows = kRowsF32;     // that the kernels see
  bool rotated = false;                 // they see rotated rows: so must q be, and the output is turned back
  const CacheFormat* format = nullptr;  // of the cache; of q where keys are ragged
  ElementKind q_kind = kF32, out_kind = kF32;
  int32_t window_left = -1, window_right = -1;
  float soft_cap = 0;
  AlibiKind alibi = kAlibiNone;
  Shard shard{1, 0, 1};

  // How rows are cut into units.
  uint32_t unit_heads = 1;   // query heads of one kv head in a unit
  uint32_t head_units = 1;   // units over all heads
  uint32_t unit_tokens = 1;  // query tokens in a unit
  uint32_t max_parts = 0;    // splits of one call in all; 0: never split
  uint32_t num_workers = 1;

  bool has(uint32_t feature) const { return ((features >> feature) & 1u) != 0; }
  AttendFn attend() const { return attend_rows(kernel_rows); }                         // over the cache, or ragged keys
  AttendFn attend_mha() const { return attend_rows(rows_of(float_format(q_dtype))); }  // keys in the query's dtype
  AttendFn attend_rows(RowFormat rows) const;
  AttendFn own_kernel(RowFormat rows) const;  // null where no set has one for these rows
  // Unit::load_row of attend(): null where the instruction set has a kernel for the cache's rows.
  decltype(Unit::load_row) load_row() const { return own_kernel(kernel_rows) ? nullptr : kernels->load_row[kernel_rows]; }
  bool scaled() const { return has(ANYATTN_FEATURE_KV_SCALES) || has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD); }
  uint32_t unit_rows() const { return unit_heads * unit_tokens; }
};

// Fills `plan`, or names every reason against it. True without reasons.
bool choose_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                 Reasons& reasons, Plan& plan);

// The same for impl_create: throws UNSUPPORTED with the reasons in one sentence.
Plan require_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem);

// What both backends answer to a problem they take.
void fill_report(const Plan& plan, anyattn_support_report& report);

ElementKind element_kind(uint32_t dtype);

}  // namespace anyattn::cpu
