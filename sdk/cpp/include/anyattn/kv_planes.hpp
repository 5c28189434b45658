// SPDX-License-Identifier: Apache-2.0
// The planes of a cache as kernels address them: where rows lie in a block, read out of the spec an impl was made with, and the two
// usual specs of K and V. Included by plugins with a paged cache. Knows no format beyond a plane's dtype.
#pragma once

#include <array>
#include <initializer_list>

#include "anyattn/attention.h"
#include "anyattn/backend.hpp"
#include "anyattn/dtypes.hpp"
#include "anyattn/kv_cache.hpp"

namespace anyattn {

// Rows of one plane in a block: token t of head h starts at byte_offset + t * token_bytes + h * head_bytes.
struct PlaneLayout {
  uint64_t byte_offset = 0;
  int64_t token_bytes = 0;
  int64_t head_bytes = 0;  // 0 where the role has no heads
};

// An accepted spec, as far as calls need it.
struct CacheLayout {
  uint32_t block_size = 0;
  uint64_t block_bytes = 0;
  uint32_t alignment = 16;
  uint64_t digest = 0;
  PlaneLayout k, v;  // MLA: both the latent plane
};

inline constexpr uint32_t kCacheAlignment = 16;  // of planes; rows of multiples of 8 in 16 bits and more then start on it

constexpr uint64_t round_to_cache(uint64_t bytes) { return (bytes + kCacheAlignment - 1) / kCacheAlignment * kCacheAlignment; }

// The plane's place. Throws unless it has this dtype and these dims behind the block dimension.
inline PlaneLayout read_plane(const anyattn_plane& plane, const char* name, uint32_t dtype,
                              std::initializer_list<int64_t> dims) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (plane.dtype != dtype)
    throw Error(kWrong, "plane ", name, " has dtype ", dtype_name(plane.dtype), "; needed: ", dtype_name(dtype));
  if (plane.ndim != dims.size() + 1)
    throw Error(kWrong, "plane ", name, " has ", plane.ndim, " dims; needed: ", dims.size() + 1);
  int at = 1;
  for (const int64_t dim : dims) {
    if (plane.dims[at] != dim)
      throw Error(kWrong, "plane ", name, ": size ", plane.dims[at], " of dim ", at, "; needed: ", dim);
    ++at;
  }
  return {plane.byte_offset, plane.strides[1], plane.ndim > 3 ? plane.strides[2] : 0};
}

// Throws unless the elements of a row lie one behind the other.
inline void check_dense(const anyattn_plane& plane, const char* name) {
  if (plane.strides[plane.ndim - 1] != static_cast<int64_t>(dtype_bytes(plane.dtype)))
    throw Error(ANYATTN_INVALID_ARGUMENT, "plane ", name, ": stride of ", plane.strides[plane.ndim - 1],
                " bytes of the last dim; needed: ", dtype_bytes(plane.dtype));
}

// Both at once, of the spec's plane of this role.
inline PlaneLayout read_dense_plane(const anyattn_kv_cache_spec& spec, uint32_t role, const char* name, uint32_t dtype,
                                    std::initializer_list<int64_t> dims) {
  const anyattn_plane plane = find_plane(spec, role);
  const PlaneLayout layout = read_plane(plane, name, dtype, dims);
  check_dense(plane, name);
  return layout;
}

// The spec without its planes. Throws where it is null or for another block size.
inline CacheLayout read_spec(const anyattn_kv_cache_spec* spec, uint32_t block_size) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (!spec) throw Error(kWrong, "spec is null; needed where keys are paged: one that kv_cache_spec gave");
  if (spec->block_size != block_size)
    throw Error(kWrong, "spec.block_size ", spec->block_size, "; needed: the problem's ", block_size);
  CacheLayout layout;
  layout.block_size = spec->block_size;
  layout.block_bytes = spec->block_bytes;
  layout.alignment = spec->alignment;
  layout.digest = spec->digest;
  return layout;
}

// Sizes of a cache whose K and V hold one dtype of whole bytes.
struct PlainCache {
  uint32_t dtype, block_size, num_kv_heads, head_size, head_size_v;
};

// Gives the two usual layouts, K before V in a block: HND (rows of a head together), then NHD.
inline void give_plain_specs(const PlainCache& cache, const SpecSink& accept) {
  const int64_t element = dtype_bytes(cache.dtype), tokens = cache.block_size, heads = cache.num_kv_heads;
  const int64_t k_row = int64_t{cache.head_size} * element, v_row = int64_t{cache.head_size_v} * element;
  const uint64_t k_bytes = round_to_cache(static_cast<uint64_t>(tokens * heads * k_row));
  const uint64_t block_bytes = k_bytes + round_to_cache(static_cast<uint64_t>(tokens * heads * v_row));
  for (const bool head_major : {true, false}) {
    SpecBuilder builder(head_major ? "HND" : "NHD", cache.block_size, block_bytes, kCacheAlignment);
    const auto add = [&](uint32_t role, uint32_t size, int64_t row, uint64_t at) {
      const int64_t token = head_major ? row : heads * row, head = head_major ? tokens * row : row;
      builder.plane(role, cache.dtype, {tokens, heads, size}, {token, head, element}, at);
    };
    add(ANYATTN_PLANE_K, cache.head_size, k_row, 0);
    add(ANYATTN_PLANE_V, cache.head_size_v, v_row, k_bytes);
    accept(builder.get());
  }
}

// Layout of an accepted spec of such a cache. Throws where it does not fit.
inline CacheLayout read_plain_spec(const PlainCache& cache, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = read_spec(spec, cache.block_size);
  layout.k =
      read_dense_plane(*spec, ANYATTN_PLANE_K, "K", cache.dtype, {cache.block_size, cache.num_kv_heads, cache.head_size});
  layout.v =
      read_dense_plane(*spec, ANYATTN_PLANE_V, "V", cache.dtype, {cache.block_size, cache.num_kv_heads, cache.head_size_v});
  return layout;
}

// The call's cache, checked against the layout: present, aligned, same digest, blocks not overlapping. Throws.
inline anyattn_cache read_cache(const CacheLayout& layout, const anyattn_cache* cache) {
  const Received given(cache, ANYATTN_CACHE_SIZE, "args.cache");
  check_cache(*given, layout.digest, layout.block_bytes, layout.alignment);
  return *given;
}

}  // namespace anyattn
