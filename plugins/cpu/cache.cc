// SPDX-License-Identifier: Apache-2.0
#include "cache.h"

#include <atomic>
#include <string>
#include <utility>

namespace anyattn::cpu {
namespace {

// Records: 512 codes, four scales, 64 bfloat16.
constexpr int64_t kRecordScales = 4, kRecordScalesAt = 512, kRecordRopeAt = 528, kRecordBytes = 656;

// Kernels read scales right behind a row's codes.
void check_beside(const PlaneLayout& rows, int64_t code_bytes, const anyattn_plane& scale, const char* name) {
  const bool heads = scale.role != ANYATTN_PLANE_LATENT_SCALE && scale.role != ANYATTN_PLANE_LATENT_PE;
  if (scale.byte_offset != rows.byte_offset + static_cast<uint64_t>(code_bytes) || scale.strides[1] != rows.token_bytes ||
      (heads && scale.strides[2] != rows.head_bytes))
    throw Error(ANYATTN_INVALID_ARGUMENT, "plane ", name, " does not stand behind the rows; needed: ", code_bytes,
                " bytes after each row's start");
}

}  // namespace

void plain_specs(const Plan& plan, const SpecSink& accept) {
  const CacheFormat& format = *plan.format;
  const int64_t element = dtype_bytes(format.dtype);
  const int64_t tokens = plan.block_size, heads = plan.num_kv_heads;
  const int64_t k_row = format.row_bytes(plan.head_size), v_row = format.row_bytes(plan.head_size_v);
  const uint64_t k_bytes = round_to_cache(static_cast<uint64_t>(tokens * heads * k_row));
  const uint64_t block_bytes = k_bytes + round_to_cache(static_cast<uint64_t>(tokens * heads * v_row));
  const auto give = [&](const char* name, bool head_major) {
    SpecBuilder builder(name, plan.block_size, block_bytes, kCacheAlignment);
    const auto add = [&](uint32_t role, uint32_t scale_role, uint32_t size, int64_t row, uint64_t at) {
      const int64_t token = head_major ? row : heads * row, head = head_major ? tokens * row : row;
      builder.plane(role, format.dtype, {tokens, heads, size / format.packed}, {token, head, element}, at);
      if (format.beside)
        builder.plane(scale_role, ANYATTN_DTYPE_FLOAT32, {tokens, heads}, {token, head}, at + format.code_bytes(size));
    };
    add(ANYATTN_PLANE_K, ANYATTN_PLANE_K_SCALE, plan.head_size, k_row, 0);
    add(ANYATTN_PLANE_V, ANYATTN_PLANE_V_SCALE, plan.head_size_v, v_row, k_bytes);
    accept(builder.get());
  };
  give("HND", true);
  give("NHD", false);
}

void latent_specs(const Plan& plan, const SpecSink& accept) {
  const bool records = plan.format->rows == kRowsRecord;
  const int64_t element = dtype_bytes(plan.format->dtype), row = records ? kRecordBytes : plan.head_size * element;
  SpecBuilder builder(records ? "records" : "latent", plan.block_size,
                      round_to_cache(static_cast<uint64_t>(plan.block_size * row)), kCacheAlignment);
  if (records) {
    builder.plane(ANYATTN_PLANE_LATENT_C, plan.format->dtype, {plan.block_size, plan.kv_lora_rank}, {row, 1}, 0);
    builder.plane(ANYATTN_PLANE_LATENT_SCALE, ANYATTN_DTYPE_FLOAT32, {plan.block_size, kRecordScales}, {row, 4},
                  kRecordScalesAt);
    builder.plane(ANYATTN_PLANE_LATENT_PE, ANYATTN_DTYPE_BFLOAT16, {plan.block_size, plan.rope}, {row, 2}, kRecordRopeAt);
  } else {
    builder.plane(ANYATTN_PLANE_LATENT, plan.format->dtype, {plan.block_size, plan.head_size}, {row, element}, 0);
  }
  accept(builder.get());
}

CacheLayout plain_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = read_spec(spec, plan.block_size);
  const CacheFormat& format = *plan.format;
  const auto read = [&](uint32_t role, uint32_t scale_role, const char* name, uint32_t size) {
    const anyattn_plane plane = find_plane(*spec, role);
    const PlaneLayout rows = read_plane(plane, name, format.dtype, {plan.block_size, plan.num_kv_heads, size / format.packed});
    check_dense(plane, name);
    if (!format.beside) return rows;
    const anyattn_plane scale = find_plane(*spec, scale_role);
    const std::string scale_name = std::string(name) + " scale";
    read_plane(scale, scale_name.c_str(), ANYATTN_DTYPE_FLOAT32, {plan.block_size, plan.num_kv_heads});
    check_beside(rows, format.code_bytes(size), scale, scale_name.c_str());
    return rows;
  };
  layout.k = read(ANYATTN_PLANE_K, ANYATTN_PLANE_K_SCALE, "K", plan.head_size);
  layout.v = read(ANYATTN_PLANE_V, ANYATTN_PLANE_V_SCALE, "V", plan.head_size_v);
  return layout;
}

CacheLayout latent_layout(const Plan& plan, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = read_spec(spec, plan.block_size);
  const auto read = [&](uint32_t role, const char* name, uint32_t dtype, int64_t size) {
    const anyattn_plane plane = find_plane(*spec, role);
    const PlaneLayout rows = read_plane(plane, name, dtype, {plan.block_size, size});
    check_dense(plane, name);
    return std::pair(rows, plane);
  };
  if (plan.format->rows != kRowsRecord) {
    layout.k = layout.v = read(ANYATTN_PLANE_LATENT, "latent", plan.format->dtype, plan.head_size).first;
    return layout;
  }
  layout.k = layout.v = read(ANYATTN_PLANE_LATENT_C, "latent codes", plan.format->dtype, plan.kv_lora_rank).first;
  check_beside(layout.k, kRecordScalesAt,
               read(ANYATTN_PLANE_LATENT_SCALE, "latent scale", ANYATTN_DTYPE_FLOAT32, kRecordScales).second, "latent scale");
  check_beside(layout.k, kRecordRopeAt, read(ANYATTN_PLANE_LATENT_PE, "latent rope", ANYATTN_DTYPE_BFLOAT16, plan.rope).second,
               "latent rope");
  return layout;
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
  const CacheFormat& format = *plan.format;
  const int64_t element = dtype_bytes(format.dtype);
  const int64_t scale_stride = plan.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) ? 1 : 0;
  const auto store = plan.kernels->store_row[format.rows];
  host.parallel_for(static_cast<uint64_t>(count), 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (auto t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); ++t) {
      const int64_t slot = slots(t);
      if (slot < 0) continue;
      char* block = base + static_cast<uint64_t>(slot / block_size) * cache.block_stride_bytes;
      const auto row_of = [&](const StoredRows& tensor) {
        return block + tensor.plane.byte_offset + slot % block_size * tensor.plane.token_bytes;
      };
      const auto given = [t](const StoredRows& tensor, int64_t head) {
        return reinterpret_cast<const char*>(tensor.rows.at(t, head));
      };
      if (format.rows == kRowsRecord) {
        plan.kernels->store_record(row_of(tensors[0]), given(tensors[0], 0), given(tensors[1], 0), plan.q_kind);
        continue;
      }
      for (const StoredRows& tensor : tensors) {
        char* to = row_of(tensor) + tensor.column * element;
        const auto size = static_cast<uint32_t>(tensor.rows.shape[2]);
        for (int64_t head = 0; head < tensor.rows.shape[1]; ++head) {
          const float scale = tensor.scales ? tensor.scales[head * scale_stride] : 1.f;
          store(to + head * tensor.plane.head_bytes, given(tensor, head), plan.q_kind, size, scale);
        }
      }
    }
  });
}

}  // namespace anyattn::cpu
