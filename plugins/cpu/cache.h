// SPDX-License-Identifier: Apache-2.0
// The cache as the kernels address it: planes of the spec the impl was made with, blocks of the call.
// Included by both backends.
#pragma once

#include <cstdint>

#include "anyattn/attention.h"
#include "anyattn/backend.hpp"
#include "anyattn/host.hpp"
#include "anyattn/tensor_view.hpp"
#include "plan.h"

namespace anyattn::cpu {

// One plane of the impl's spec.
struct PlaneLayout {
  uint64_t byte_offset = 0;
  int64_t token_bytes = 0;
  int64_t head_bytes = 0;  // 0 where the role has no heads
};

struct CacheLayout {
  uint32_t block_size = 0;
  uint64_t block_bytes = 0;
  uint32_t alignment = 16;
  uint64_t digest = 0;
  PlaneLayout k, v;  // MLA: both the latent plane
};

// Specs of CPU_ATTN, head-major first, then token-major; the one of CPU_MLA. Reads sizes and dtype of the plan.
void plain_specs(const Plan& plan, const SpecSink& accept);
void latent_specs(const Plan& plan, const SpecSink& accept);

// Layout of an accepted spec. Throws where it is none of ours or does not fit the plan.
CacheLayout plain_layout(const Plan& plan, const anyattn_kv_cache_spec* spec);
CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec);

// The call's cache, checked against the layout: present, aligned, same digest, blocks not overlapping.
anyattn_cache checked_cache(const CacheLayout& layout, const anyattn_cache* cache);

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
