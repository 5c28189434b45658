// SPDX-License-Identifier: Apache-2.0
// The one decision of both backends: what a problem needs, whether it is done here, and what the kernels are specialised for.
// Stands behind supports, memory and the calls alike.
#pragma once

#include <cstdint>
#include <string>

#include "anyattn/kv_formats.hpp"
#include "kernels.h"

namespace anyattn::portable {

enum class Family { kPlain, kMla };

struct Plan {
  uint64_t features = 0;  // word 0
  bool ragged = false;
  uint32_t num_q_heads = 0, num_kv_heads = 0;
  uint32_t head_size = 0, head_size_v = 0;
  uint32_t kv_lora_rank = 0, rope = 0;              // MLA
  uint32_t mha_head_size = 0, mha_head_size_v = 0;  // MLA: of forward_mha
  uint32_t block_size = 0;
  uint32_t dtype = 0, out_dtype = 0;    // ANYATTN_DTYPE_* of q, and of k and v as they are given; of out
  const CacheFormat* format = nullptr;  // null where keys are ragged
  Specialisation main;                  // forward, or forward_mqa
  Specialisation mha;                   // MLA: forward_mha
  std::string tiles;                    // what option `tiles` changed; empty: nothing
  std::string not_run;                  // what the report says of the device

  bool has(uint32_t feature) const { return ((features >> feature) & 1u) != 0; }
  // Does a call bring scales of K and V?
  bool scaled() const { return has(ANYATTN_FEATURE_KV_SCALES) || has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD); }
};

// Fills `plan`, or names every reason against it. True without reasons.
bool choose_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                 Reasons& reasons, Plan& plan);

// The same for impl_create: throws UNSUPPORTED with the reasons in one sentence.
Plan require_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem);

void fill_report(const Plan& plan, anyattn_support_report& report);

Kind kind_of(uint32_t dtype);

}  // namespace anyattn::portable
