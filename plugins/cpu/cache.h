// SPDX-License-Identifier: Apache-2.0
// The cache as the kernels address it: planes of the spec the impl was made with, blocks of the call.
// Included by both backends.
#pragma once

#include <cstdint>

#include "anyattn/host.hpp"
#include "anyattn/kv_planes.hpp"
#include "anyattn/tensor_view.hpp"
#include "plan.h"

namespace anyattn::cpu {

// Specs of CPU_ATTN, head-major first, then token-major; the one of CPU_MLA. Reads sizes and dtype of the plan.
void plain_specs(const Plan& plan, const SpecSink& accept);
void latent_specs(const Plan& plan, const SpecSink& accept);

// Layout of an accepted spec. Throws where it is none of ours or does not fit the plan.
CacheLayout plain_layout(const Plan& plan, const anyattn_kv_cache_spec* spec);
CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec);

// One tensor to be stored and the plane it goes to. heads is 1 with MLA; column counts elements from the row's start.
struct StoredRows {
  RawView<3> rows;  // [tokens, heads, size]
  PlaneLayout plane;
  const float* scales = nullptr;  // of the call: one, or one a head; null: 1
  uint32_t column = 0;
};

// Token t of every tensor to slot slots[t]; -1 is skipped. Throws before anything is written where a slot lies outside.
void store_rows(const Host& host, const Plan& plan, const CacheLayout& layout, const anyattn_cache& cache,
                const StoredRows (&tensors)[2], const TensorView<const int64_t, 1>& slots);

}  // namespace anyattn::cpu
