// SPDX-License-Identifier: Apache-2.0
#include "cache.h"

#include <array>

#include "anyattn/dtypes.hpp"
#include "anyattn/kv_cache.hpp"

namespace anyattn::portable {
namespace {

constexpr uint32_t kAlignment = 16;  // head sizes are multiples of 8: every row of K then starts on 16 bytes
constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

PlaneLayout read_plane(const Plan& plan, const anyattn_kv_cache_spec& spec, uint32_t role, const char* name,
                       std::initializer_list<int64_t> dims) {
  const anyattn_plane plane = find_plane(spec, role);
  if (plane.dtype != plan.dtype)
    throw Error(kWrong, "plane ", name, " has dtype ", dtype_name(plane.dtype), "; needed: ", dtype_name(plan.dtype));
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
  return {plane.byte_offset, plane.strides[1], plane.ndim == 4 ? plane.strides[2] : 0};
}

CacheLayout layout_of(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  if (!spec) throw Error(kWrong, "spec is null; needed where keys are paged: one that kv_cache_spec gave");
  if (spec->block_size != plan.block_size)
    throw Error(kWrong, "spec.block_size ", spec->block_size, "; needed: the problem's ", plan.block_size);
  CacheLayout layout;
  layout.block_bytes = spec->block_bytes;
  layout.alignment = spec->alignment;
  layout.digest = spec->digest;
  return layout;
}

}  // namespace

void plain_specs(const Plan& plan, const SpecSink& accept) {
  const int64_t element = dtype_bytes(plan.dtype);
  const int64_t tokens = plan.block_size, heads = plan.num_kv_heads;
  const int64_t k_row = int64_t{plan.head_size} * element, v_row = int64_t{plan.head_size_v} * element;
  const uint64_t k_bytes = rounded(static_cast<uint64_t>(tokens * heads * k_row));
  const uint64_t block_bytes = k_bytes + rounded(static_cast<uint64_t>(tokens * heads * v_row));
  const auto give = [&](const char* name, bool head_major) {
    const auto strides = [&](int64_t row) {
      return head_major ? std::array<int64_t, 3>{row, tokens * row, element}
                        : std::array<int64_t, 3>{heads * row, row, element};
    };
    const auto k = strides(k_row), v = strides(v_row);
    SpecBuilder builder(name, plan.block_size, block_bytes, kAlignment);
    builder.plane(ANYATTN_PLANE_K, plan.dtype, {tokens, heads, plan.head_size}, {k[0], k[1], k[2]}, 0);
    builder.plane(ANYATTN_PLANE_V, plan.dtype, {tokens, heads, plan.head_size_v}, {v[0], v[1], v[2]}, k_bytes);
    accept(builder.get());
  };
  give("HND", true);
  give("NHD", false);
}

void latent_specs(const Plan& plan, const SpecSink& accept) {
  const int64_t element = dtype_bytes(plan.dtype), row = plan.head_size * element;
  SpecBuilder builder("latent", plan.block_size, rounded(static_cast<uint64_t>(plan.block_size * row)), kAlignment);
  builder.plane(ANYATTN_PLANE_LATENT, plan.dtype, {plan.block_size, plan.head_size}, {row, element}, 0);
  accept(builder.get());
}

CacheLayout plain_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = layout_of(plan, spec);
  layout.k = read_plane(plan, *spec, ANYATTN_PLANE_K, "K", {plan.block_size, plan.num_kv_heads, plan.head_size});
  layout.v = read_plane(plan, *spec, ANYATTN_PLANE_V, "V", {plan.block_size, plan.num_kv_heads, plan.head_size_v});
  return layout;
}

CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = layout_of(plan, spec);
  layout.k = layout.v = read_plane(plan, *spec, ANYATTN_PLANE_LATENT, "latent", {plan.block_size, plan.head_size});
  return layout;
}

anyattn_cache checked_cache(const CacheLayout& layout, const anyattn_cache* cache) {
  const Received given(cache, ANYATTN_CACHE_SIZE, "args.cache");
  check_cache(*given, layout.digest, layout.block_bytes, layout.alignment);
  return *given;
}

Rows plane_rows(const anyattn_cache& cache, const PlaneLayout& plane) {
  return {static_cast<char*>(cache.base) + plane.byte_offset, plane.token_bytes, plane.head_bytes};
}

}  // namespace anyattn::portable
