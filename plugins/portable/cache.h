// SPDX-License-Identifier: Apache-2.0
// The cache as the kernels address it: planes of the spec the impl was made with, blocks of the call. Included by both backends.
#pragma once

#include "anyattn/kv_formats.hpp"
#include "plan.h"

namespace anyattn::portable {

inline CacheSizes cache_sizes(const Plan& plan) {
  return {plan.block_size, plan.num_kv_heads, plan.head_size, plan.head_size_v};
}

// A plane of the call's cache as rows of a block; block b lies b * block_stride_bytes further.
inline Rows plane_rows(const anyattn_cache& cache, const PlaneLayout& plane) {
  return {static_cast<char*>(cache.base) + plane.byte_offset, plane.token_bytes, plane.head_bytes};
}

}  // namespace anyattn::portable
