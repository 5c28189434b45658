// SPDX-License-Identifier: Apache-2.0
// The cache as the kernels address it: planes of the spec the impl was made with, blocks of the call.
// Included by both backends.
#pragma once

#include <cstdint>

#include "anyattn/host.hpp"
#include "anyattn/kv_formats.hpp"
#include "anyattn/tensor_view.hpp"
#include "plan.h"

namespace anyattn::cpu {

inline CacheSizes cache_sizes(const Plan& plan) {
  return {plan.block_size, plan.num_kv_heads, plan.head_size, plan.head_size_v};
}

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
