// SPDX-License-Identifier: Apache-2.0
// Building and reading cache specs. Included by plugins and tests. Owns the planes of the specs it builds, no cache memory.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "anyattn/error.hpp"
#include "anyattn/kv_cache.h"

namespace anyattn {

// A spec under construction: add planes, then get(). What get() returns borrows from this object.
class SpecBuilder {
 public:
  SpecBuilder(std::string name, uint32_t block_size, uint64_t block_bytes, uint32_t alignment)
      : name_(std::move(name)), block_size_(block_size), block_bytes_(block_bytes), alignment_(alignment) {}

  // dims and strides without the block dimension, in the role's logical order; strides in bytes.
  SpecBuilder& plane(uint32_t role, uint32_t dtype, std::initializer_list<int64_t> dims, std::initializer_list<int64_t> strides,
                     uint64_t byte_offset) {
    anyattn_plane plane{};
    plane.struct_size = ANYATTN_PLANE_SIZE;
    plane.role = role;
    plane.dtype = dtype;
    plane.ndim = static_cast<uint32_t>(dims.size()) + 1;
    plane.strides[0] = static_cast<int64_t>(block_bytes_);
    int at = 1;
    for (const int64_t dim : dims) plane.dims[at++] = dim;
    at = 1;
    for (const int64_t stride : strides) plane.strides[at++] = stride;
    plane.byte_offset = byte_offset;
    planes_.push_back(plane);
    return *this;
  }

  anyattn_kv_cache_spec get() const {
    anyattn_kv_cache_spec spec{};
    spec.struct_size = ANYATTN_KV_CACHE_SPEC_SIZE;
    spec.block_size = block_size_;
    spec.block_bytes = block_bytes_;
    spec.alignment = alignment_;
    spec.num_planes = static_cast<uint32_t>(planes_.size());
    spec.plane_stride = sizeof(anyattn_plane);
    spec.planes = planes_.data();
    spec.name = name_.c_str();
    spec.digest = anyattn_kv_cache_spec_digest(&spec);
    return spec;
  }

 private:
  std::string name_;
  uint32_t block_size_;
  uint64_t block_bytes_;
  uint32_t alignment_;
  std::vector<anyattn_plane> planes_;
};

// A call's cache against the spec its impl was made with: present, aligned, same digest, blocks not overlapping. Throws.
inline void check_cache(const anyattn_cache& given, uint64_t digest, uint64_t block_bytes, uint32_t alignment) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (!given.base) throw Error(kWrong, "cache.base is null");
  if (reinterpret_cast<uintptr_t>(given.base) % 256 != 0)
    throw Error(kWrong, "cache.base is ", reinterpret_cast<uintptr_t>(given.base) % 256, " bytes past a multiple of 256");
  if (!given.spec) throw Error(kWrong, "cache.spec is null");
  if (given.spec->struct_size < ANYATTN_KV_CACHE_SPEC_SIZE || given.spec->digest != digest)
    throw Error(kWrong, "cache.spec has digest ", given.spec->digest, "; needed: that of the impl's spec, ", digest);
  if (given.block_stride_bytes < block_bytes || given.block_stride_bytes % alignment != 0)
    throw Error(kWrong, "cache.block_stride_bytes ", given.block_stride_bytes, "; needed: a multiple of ", alignment,
                " of at least ", block_bytes);
  if (given.num_blocks == 0) throw Error(kWrong, "cache.num_blocks is 0; needed: the blocks that base holds, 1 or more");
}

// The spec's plane of this role, read through its size and stride. Throws where the spec has none.
inline anyattn_plane find_plane(const anyattn_kv_cache_spec& spec, uint32_t role) {
  for (uint32_t i = 0; i < spec.num_planes; ++i) {
    anyattn_plane plane;
    anyattn_read_struct(&plane, ANYATTN_PLANE_SIZE,
                        reinterpret_cast<const char*>(spec.planes) + static_cast<size_t>(i) * spec.plane_stride);
    if (plane.role == role) return plane;
  }
  throw Error(ANYATTN_INVALID_ARGUMENT, "the cache spec ", spec.name ? spec.name : "(unnamed)", " has no plane of role ", role);
}

}  // namespace anyattn
