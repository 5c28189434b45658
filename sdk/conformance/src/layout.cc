// SPDX-License-Identifier: Apache-2.0
#include "layout.h"

#include <algorithm>
#include <array>

#include "anyattn/conformance/cache_format.h"
#include "anyattn/util.h"
#include "failure.h"
#include "tensor.h"

namespace anyattn::conformance {
namespace {

uint64_t element_bytes(const anyattn_plane& plane) { return ((plane.dtype >> 8) & 0xffu) / 8; }

// What a plane of a role must be: dims after the block dimension, and the element.
struct PlaneNeed {
  std::vector<int64_t> dims;
  uint32_t dtype = 0;
};

// Empty dims: the role is none of the format's.
PlaneNeed need_of(uint32_t role, const CacheFormat& format, const anyattn_problem& p, int64_t block_size) {
  const bool row_scale = format.coding == Coding::kRow8 || format.coding == Coding::kRow4;
  const bool tiles = format.coding == Coding::kTiles;
  const int64_t packed = format.coding == Coding::kRow4 ? 2 : 1;
  switch (role) {
    case ANYATTN_PLANE_K:
      return {{block_size, p.num_kv_heads, p.head_size / packed}, format.dtype};
    case ANYATTN_PLANE_V:
      return {{block_size, p.num_kv_heads, p.head_size_v / packed}, format.dtype};
    case ANYATTN_PLANE_K_SCALE:
    case ANYATTN_PLANE_V_SCALE:
      if (!row_scale) return {};
      return {{block_size, p.num_kv_heads}, ANYATTN_DTYPE_FLOAT32};
    case ANYATTN_PLANE_LATENT:
      if (tiles) return {};
      return {{block_size, int64_t{p.kv_lora_rank} + p.qk_rope_head_dim}, format.dtype};
    case ANYATTN_PLANE_LATENT_C:
      return {{block_size, p.kv_lora_rank}, format.dtype};
    case ANYATTN_PLANE_LATENT_PE:
      return {{block_size, p.qk_rope_head_dim}, tiles ? ANYATTN_DTYPE_BFLOAT16 : format.dtype};
    case ANYATTN_PLANE_LATENT_SCALE:
      if (!tiles) return {};
      return {{block_size, p.kv_lora_rank / 128}, ANYATTN_DTYPE_FLOAT32};
    default:
      return {};
  }
}

std::vector<uint32_t> roles_of(const CacheFormat& format, bool mla) {
  if (format.coding == Coding::kTiles) return {ANYATTN_PLANE_LATENT_C, ANYATTN_PLANE_LATENT_SCALE, ANYATTN_PLANE_LATENT_PE};
  if (mla) return {ANYATTN_PLANE_LATENT};
  if (format.coding == Coding::kRow8 || format.coding == Coding::kRow4)
    return {ANYATTN_PLANE_K, ANYATTN_PLANE_K_SCALE, ANYATTN_PLANE_V, ANYATTN_PLANE_V_SCALE};
  return {ANYATTN_PLANE_K, ANYATTN_PLANE_V};
}

const CacheFormat& format_of(const anyattn_problem& p) {
  const CacheFormat* format = find_cache_format(p.kv_cache_dtype ? p.kv_cache_dtype : "");
  if (!format) throw NotOffered(text("the kit knows no cache format '%s'", p.kv_cache_dtype ? p.kv_cache_dtype : ""));
  return *format;
}

anyattn_plane compact_plane(uint32_t role, const anyattn_problem& p, int64_t block_size, uint64_t at) {
  const auto [dims, dtype] = need_of(role, format_of(p), p, block_size);
  anyattn_plane plane{};
  plane.struct_size = ANYATTN_PLANE_SIZE;
  plane.role = role;
  plane.dtype = dtype;
  plane.ndim = static_cast<uint32_t>(dims.size() + 1);
  plane.byte_offset = at;
  int64_t stride = static_cast<int64_t>(element_bytes(plane));
  for (size_t i = dims.size(); i > 0; --i) {
    plane.dims[i] = dims[i - 1];
    plane.strides[i] = stride;
    stride *= dims[i - 1];
  }
  return plane;
}

uint64_t plane_end(const anyattn_plane& plane) {
  uint64_t last = plane.byte_offset + element_bytes(plane);
  for (uint32_t i = 1; i < plane.ndim; ++i) last += static_cast<uint64_t>((plane.dims[i] - 1) * plane.strides[i]);
  return last;
}

}  // namespace

Layout::Layout(const anyattn_kv_cache_spec& spec, const anyattn_problem& problem) {
  anyattn_read_struct(&spec_, ANYATTN_KV_CACHE_SPEC_SIZE, &spec);
  name_ = spec_.name ? spec_.name : "";
  for (uint32_t i = 0; i < spec_.num_planes; ++i) {
    anyattn_plane plane{};
    anyattn_read_struct(&plane, ANYATTN_PLANE_SIZE,
                        reinterpret_cast<const std::byte*>(spec_.planes) + size_t{i} * spec_.plane_stride);
    planes_.push_back(plane);
  }
  if (spec_.digest != anyattn_kv_cache_spec_digest(&spec_))
    throw Failure("spec '" + name_ + "': the digest is not that of its numbers");
  spec_.plane_stride = sizeof(anyattn_plane);
  check(problem);
}

Layout Layout::simplest(const anyattn_problem& problem) {
  const bool mla = problem.kv_lora_rank > 0 && anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA);
  const int64_t block_size = problem.block_size > 0 ? problem.block_size : 16;
  std::vector<anyattn_plane> planes;
  uint64_t end = 0;
  for (uint32_t role : roles_of(format_of(problem), mla)) {
    planes.push_back(compact_plane(role, problem, block_size, end));
    end = (plane_end(planes.back()) + 63) / 64 * 64;
  }
  for (anyattn_plane& plane : planes) plane.strides[0] = static_cast<int64_t>(end);
  anyattn_kv_cache_spec spec{};
  spec.struct_size = ANYATTN_KV_CACHE_SPEC_SIZE;
  spec.block_size = static_cast<uint32_t>(block_size);
  spec.block_bytes = end;
  spec.alignment = 64;
  spec.num_planes = static_cast<uint32_t>(planes.size());
  spec.plane_stride = sizeof(anyattn_plane);
  spec.planes = planes.data();
  spec.name = "NHD";
  spec.digest = anyattn_kv_cache_spec_digest(&spec);
  anyattn_problem asked = problem;
  asked.block_size = spec.block_size;
  return {spec, asked};
}

const anyattn_kv_cache_spec* Layout::spec() const {
  spec_.planes = planes_.data();
  spec_.name = name_.c_str();
  return &spec_;
}

const anyattn_plane* Layout::find(uint32_t role) const {
  const auto at = std::find_if(planes_.begin(), planes_.end(), [&](const anyattn_plane& plane) { return plane.role == role; });
  return at == planes_.end() ? nullptr : &*at;
}

void Layout::check(const anyattn_problem& problem) const {
  const std::string who = "spec '" + name_ + "': ";
  if (spec_.block_size == 0 || (problem.block_size > 0 && spec_.block_size != problem.block_size)) {
    throw Failure(who + text("block_size is %u; %u was asked for", spec_.block_size, problem.block_size));
  }
  if (spec_.alignment < 16 || spec_.block_bytes % spec_.alignment != 0) {
    throw Failure(who + text("block_bytes %llu must be a multiple of alignment %u, which must be at least 16",
                             static_cast<unsigned long long>(spec_.block_bytes), spec_.alignment));
  }
  if (planes_.empty()) throw Failure(who + "has no plane");
  const CacheFormat& format = format_of(problem);
  for (const anyattn_plane& plane : planes_) {
    const auto [dims, dtype] = need_of(plane.role, format, problem, spec_.block_size);
    if (dims.empty()) throw NotOffered(who + text("plane role %u is not one this kit can read", plane.role));
    if (plane.ndim != dims.size() + 1)
      throw Failure(who + text("plane role %u has %u dims; %zu are right", plane.role, plane.ndim, dims.size() + 1));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (plane.dims[i + 1] != dims[i]) {
        throw Failure(who + text("plane role %u, dim %zu is %lld; %lld is right", plane.role, i + 1,
                                 static_cast<long long>(plane.dims[i + 1]), static_cast<long long>(dims[i])));
      }
    }
    if (plane.dtype != dtype)
      throw Failure(who + text("plane role %u has dtype 0x%x; the cache format says 0x%x", plane.role, plane.dtype, dtype));
    if (plane.dims[0] != 0 || static_cast<uint64_t>(plane.strides[0]) != spec_.block_bytes) {
      throw Failure(who + text("plane role %u: dims[0] must be 0 and strides[0] block_bytes", plane.role));
    }
    if (plane_end(plane) > spec_.block_bytes) throw Failure(who + text("plane role %u ends behind its block", plane.role));
  }
}

uint64_t Layout::offset(uint32_t role, int64_t slot, int64_t head, int64_t dim) const {
  const anyattn_plane* plane = find(role);
  if (!plane && role == ANYATTN_PLANE_LATENT) {
    const anyattn_plane* latent = find(ANYATTN_PLANE_LATENT_C);
    if (!latent) throw Failure("spec '" + name_ + "': has no latent plane");
    const bool in_latent = dim < latent->dims[2];
    plane = in_latent ? latent : find(ANYATTN_PLANE_LATENT_PE);
    if (!in_latent) dim -= latent->dims[2];
  }
  if (!plane) throw Failure("spec '" + name_ + "': " + text("plane role %u is missing", role));
  const bool heads = plane->ndim == 4, one_a_head = role == ANYATTN_PLANE_K_SCALE || role == ANYATTN_PLANE_V_SCALE;
  return plane->byte_offset + static_cast<uint64_t>(slot * plane->strides[1]) +
         (heads        ? static_cast<uint64_t>(head * plane->strides[2] + dim * plane->strides[3])
          : one_a_head ? static_cast<uint64_t>(head * plane->strides[2])
                       : static_cast<uint64_t>(dim * plane->strides[2]));
}

std::vector<Layout> accepted_layouts(const anyattn_backend& backend, const anyattn_host* host,
                                     const anyattn_device_facts& facts, const anyattn_problem& problem) {
  struct Sink {
    std::vector<Layout> layouts;
    const anyattn_problem* problem;
    std::string failure;
  } sink{{}, &problem, {}};
  const auto accept = [](void* context, const anyattn_kv_cache_spec* spec) {
    auto* into = static_cast<Sink*>(context);
    try {
      into->layouts.emplace_back(*spec, *into->problem);
    } catch (const std::exception& e) {
      into->failure = e.what();
    }
  };
  ErrorText error;
  const int32_t status = backend.kv_cache_spec(host, &facts, &problem, accept, &sink, error.get());
  error.expect_ok(status, "kv_cache_spec");
  if (!sink.failure.empty()) throw Failure(sink.failure);
  if (sink.layouts.empty()) throw Failure("kv_cache_spec accepts no spec for a problem that supports takes");
  return std::move(sink.layouts);
}

}  // namespace anyattn::conformance
