// SPDX-License-Identifier: Apache-2.0
#include "cache.h"

#include <atomic>

#include "anyattn/kv_cache.hpp"

namespace anyattn::cpu {
namespace {

constexpr uint32_t kAlignment = 16;  // head sizes are multiples of 8: every K row then starts on 16 bytes

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void check_plane(const anyattn_plane& plane, const char* name, const Plan& plan, std::initializer_list<int64_t> dims) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (plane.dtype != plan.kv_dtype)
    throw Error(kWrong, "plane ", name, " has dtype ", dtype_name(plane.dtype), "; needed: ", dtype_name(plan.kv_dtype));
  if (plane.ndim != dims.size() + 1)
    throw Error(kWrong, "plane ", name, " has ", plane.ndim, " dims; needed: ", dims.size() + 1);
  int at = 1;
  for (const int64_t dim : dims) {
    if (plane.dims[at] != dim)
      throw Error(kWrong, "plane ", name, ": size ", plane.dims[at], " of dim ", at, "; needed: ", dim);
    ++at;
  }
  if (plane.strides[plane.ndim - 1] != static_cast<int64_t>(dtype_bytes(plane.dtype)))
    throw Error(kWrong, "plane ", name, ": stride of ", plane.strides[plane.ndim - 1],
                " bytes of the last dim; needed: ", dtype_bytes(plane.dtype));
}

CacheLayout layout_of(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  if (!spec) throw Error(ANYATTN_INVALID_ARGUMENT, "spec is null; needed where keys are paged: one that kv_cache_spec gave");
  if (spec->block_size != plan.block_size)
    throw Error(ANYATTN_INVALID_ARGUMENT, "spec.block_size ", spec->block_size, "; needed: the problem's ", plan.block_size);
  CacheLayout layout;
  layout.block_size = spec->block_size;
  layout.block_bytes = spec->block_bytes;
  layout.alignment = spec->alignment;
  layout.digest = spec->digest;
  return layout;
}

}  // namespace

void plain_specs(const Plan& plan, const SpecSink& accept) {
  const int64_t element = dtype_bytes(plan.kv_dtype);
  const int64_t tokens = plan.block_size, heads = plan.num_kv_heads;
  const int64_t k_row = plan.head_size * element, v_row = plan.head_size_v * element;
  const uint64_t k_bytes = rounded(static_cast<uint64_t>(tokens * heads * k_row));
  const uint64_t block_bytes = k_bytes + rounded(static_cast<uint64_t>(tokens * heads * v_row));
  const auto give = [&](const char* name, bool head_major) {
    const auto strides = [&](int64_t row) {
      return head_major ? std::array{row, tokens * row, element} : std::array{heads * row, row, element};
    };
    const auto k = strides(k_row), v = strides(v_row);
    SpecBuilder builder(name, plan.block_size, block_bytes, kAlignment);
    builder.plane(ANYATTN_PLANE_K, plan.kv_dtype, {tokens, heads, plan.head_size}, {k[0], k[1], k[2]}, 0);
    builder.plane(ANYATTN_PLANE_V, plan.kv_dtype, {tokens, heads, plan.head_size_v}, {v[0], v[1], v[2]}, k_bytes);
    accept(builder.get());
  };
  give("HND", true);
  give("NHD", false);
}

void latent_specs(const Plan& plan, const SpecSink& accept) {
  const int64_t element = dtype_bytes(plan.kv_dtype), row = plan.head_size * element;
  SpecBuilder builder("latent", plan.block_size, rounded(static_cast<uint64_t>(plan.block_size * row)), kAlignment);
  builder.plane(ANYATTN_PLANE_LATENT, plan.kv_dtype, {plan.block_size, plan.head_size}, {row, element}, 0);
  accept(builder.get());
}

CacheLayout plain_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = layout_of(plan, spec);
  const auto read = [&](uint32_t role, const char* name, int64_t size) {
    const anyattn_plane plane = find_plane(*spec, role);
    check_plane(plane, name, plan, {plan.block_size, plan.num_kv_heads, size});
    return PlaneLayout{plane.byte_offset, plane.strides[1], plane.strides[2]};
  };
  layout.k = read(ANYATTN_PLANE_K, "K", plan.head_size);
  layout.v = read(ANYATTN_PLANE_V, "V", plan.head_size_v);
  return layout;
}

CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = layout_of(plan, spec);
  const anyattn_plane plane = find_plane(*spec, ANYATTN_PLANE_LATENT);
  check_plane(plane, "latent", plan, {plan.block_size, plan.head_size});
  layout.k = layout.v = PlaneLayout{plane.byte_offset, plane.strides[1], 0};
  return layout;
}

anyattn_cache checked_cache(const CacheLayout& layout, const anyattn_cache* cache) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  const Received given(cache, ANYATTN_CACHE_SIZE, "args.cache");
  if (!given->base) throw Error(kWrong, "cache.base is null");
  if (reinterpret_cast<uintptr_t>(given->base) % 256 != 0)
    throw Error(kWrong, "cache.base is ", reinterpret_cast<uintptr_t>(given->base) % 256, " bytes past a multiple of 256");
  if (!given->spec) throw Error(kWrong, "cache.spec is null");
  if (given->spec->struct_size < ANYATTN_KV_CACHE_SPEC_SIZE || given->spec->digest != layout.digest)
    throw Error(kWrong, "cache.spec has digest ", given->spec->digest, "; needed: that of the impl's spec, ", layout.digest);
  if (given->block_stride_bytes < layout.block_bytes || given->block_stride_bytes % layout.alignment != 0)
    throw Error(kWrong, "cache.block_stride_bytes ", given->block_stride_bytes, "; needed: a multiple of ", layout.alignment,
                " of at least ", layout.block_bytes);
  return *given;
}

void store_rows(const Host& host, const Plan& plan, const CacheLayout& layout, const anyattn_cache& cache,
                const StoredRows (&tensors)[2], const TensorView<const int64_t, 1>& slots) {
  const int64_t count = slots.shape(0), block_size = layout.block_size;
  for (int64_t t = 0; t < count; ++t) {
    const int64_t slot = slots(t);
    if (slot < -1 || (slot >= 0 && static_cast<uint64_t>(slot / block_size) >= cache.num_blocks))
      throw Error(ANYATTN_INVALID_ARGUMENT, "slot_mapping[", t, "] is ", slot, "; allowed: -1 or below ", cache.num_blocks,
                  " blocks of ", block_size);
  }
  auto* base = static_cast<char*>(cache.base);
  const uint32_t element = dtype_bytes(plan.kv_dtype);
  host.parallel_for(static_cast<uint64_t>(count), 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (auto t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); ++t) {
      const int64_t slot = slots(t);
      if (slot < 0) continue;
      char* block = base + static_cast<uint64_t>(slot / block_size) * cache.block_stride_bytes;
      for (const StoredRows& tensor : tensors) {
        char* to =
            block + tensor.plane.byte_offset + slot % block_size * tensor.plane.token_bytes + size_t{tensor.column} * element;
        const auto size = static_cast<uint64_t>(tensor.rows.shape[2]);
        for (int64_t head = 0; head < tensor.rows.shape[1]; ++head)
          plan.kernels->convert(to + head * tensor.plane.head_bytes, plan.kv_kind,
                                reinterpret_cast<const char*>(tensor.rows.at(t, head)), plan.q_kind, size);
      }
    }
  });
}

}  // namespace anyattn::cpu
