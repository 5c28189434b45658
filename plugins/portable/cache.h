// SPDX-License-Identifier: Apache-2.0
// The cache as the kernels address it: planes of the spec the impl was made with, blocks of the call. Included by both backends.
#pragma once

#include <cstdint>

#include "anyattn/attention.h"
#include "anyattn/backend.hpp"
#include "plan.h"

namespace anyattn::portable {

struct PlaneLayout {
  uint64_t byte_offset = 0;
  int64_t token_bytes = 0;
  int64_t head_bytes = 0;
};

struct CacheLayout {
  PlaneLayout k, v;
  uint64_t block_bytes = 0;
  uint32_t alignment = 0;
  uint64_t digest = 0;
};

void plain_specs(const Plan& plan, const SpecSink& accept);
void latent_specs(const Plan& plan, const SpecSink& accept);
CacheLayout plain_layout(const Plan& plan, const anyattn_kv_cache_spec* spec);
CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec);

// The call's cache, checked against the layout.
anyattn_cache checked_cache(const CacheLayout& layout, const anyattn_cache* cache);

// A plane of the call's cache as rows of a block; block b lies b * block_stride_bytes further.
Rows plane_rows(const anyattn_cache& cache, const PlaneLayout& plane);

}  // namespace anyattn::portable
