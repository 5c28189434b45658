// SPDX-License-Identifier: Apache-2.0
// The cache as the kernels address it: planes of the spec the impl was made with, blocks of the call. Included by both backends.
#pragma once

#include "anyattn/kv_planes.hpp"
#include "plan.h"

namespace anyattn::portable {

inline PlainCache plain_cache(const Plan& plan) {
  return {plan.dtype, plan.block_size, plan.num_kv_heads, plan.head_size, plan.head_size_v};
}

inline void latent_specs(const Plan& plan, const SpecSink& accept) {
  const int64_t element = dtype_bytes(plan.dtype), row = plan.head_size * element;
  SpecBuilder builder("latent", plan.block_size, round_to_cache(static_cast<uint64_t>(plan.block_size * row)), kCacheAlignment);
  builder.plane(ANYATTN_PLANE_LATENT, plan.dtype, {plan.block_size, plan.head_size}, {row, element}, 0);
  accept(builder.get());
}

inline CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = read_spec(spec, plan.block_size);
  layout.k = layout.v = read_dense_plane(*spec, ANYATTN_PLANE_LATENT, "latent", plan.dtype, {plan.block_size, plan.head_size});
  return layout;
}

// A plane of the call's cache as rows of a block; block b lies b * block_stride_bytes further.
inline Rows plane_rows(const anyattn_cache& cache, const PlaneLayout& plane) {
  return {static_cast<char*>(cache.base) + plane.byte_offset, plane.token_bytes, plane.head_bytes};
}

}  // namespace anyattn::portable
