// SPDX-License-Identifier: Apache-2.0
// Cache formats by name, as sdk/ABI.md states them ("Cache formats"), what a problem must be for them, and the planes of their specs.
// Included by plugins that keep codes in a paged cache. The bytes of a row are a backend's own to write and read.
#pragma once

#include <string>
#include <string_view>

#include "anyattn/kv_planes.hpp"
#include "anyattn/problem.hpp"

namespace anyattn {

// How a row is coded. The numbers are no part of the binary interface.
enum class Coding : int {
  kFloat32 = 0,
  kFloat16 = 1,
  kBFloat16 = 2,
  kE4M3 = 3,  // one scale for all rows, or one a head, of the call
  kE5M2 = 4,
  kInt8Scaled = 5,  // a float32 scale behind each row; so to the 4-bit ones
  kE4M3Scaled = 6,
  kInt4Scaled = 7,
  kRecord = 8  // MLA: 512 E4M3, four float32 scales, 64 bfloat16
};

struct CacheFormat {
  const char* name;
  Coding coding;
  uint32_t dtype;        // of the elements of a K, V or latent plane
  uint32_t packed;       // codes an element
  uint32_t scale_bytes;  // behind the codes of a row
  bool plain, latent;    // caches it is for

  bool scaled_by_call() const { return coding <= Coding::kE5M2; }  // takes k_scale and v_scale
  uint32_t code_bytes(uint32_t size) const { return size / packed * dtype_bytes(dtype); }
  uint32_t row_bytes(uint32_t size) const { return code_bytes(size) + scale_bytes; }
};

inline constexpr CacheFormat kCacheFormats[] = {
    {"float32", Coding::kFloat32, ANYATTN_DTYPE_FLOAT32, 1, 0, true, true},
    {"float16", Coding::kFloat16, ANYATTN_DTYPE_FLOAT16, 1, 0, true, true},
    {"bfloat16", Coding::kBFloat16, ANYATTN_DTYPE_BFLOAT16, 1, 0, true, true},
    {"fp8", Coding::kE4M3, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 0, true, true},
    {"fp8_e4m3", Coding::kE4M3, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 0, true, true},
    {"fp8_e5m2", Coding::kE5M2, ANYATTN_DTYPE_FLOAT8_E5M2, 1, 0, true, true},
    {"int8_per_token_head", Coding::kInt8Scaled, ANYATTN_DTYPE_INT8, 1, 4, true, false},
    {"fp8_per_token_head", Coding::kE4M3Scaled, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 4, true, false},
    {"int4_per_token_head", Coding::kInt4Scaled, ANYATTN_DTYPE_UINT8, 2, 4, true, false},
    {"fp8_ds_mla", Coding::kRecord, ANYATTN_DTYPE_FLOAT8_E4M3FN, 1, 0, false, true},
};

// Null where the family has no such format.
inline const CacheFormat* find_cache_format(std::string_view name, bool latent) {
  for (const CacheFormat& format : kCacheFormats)
    if (name == format.name && (latent ? format.latent : format.plain)) return &format;
  return nullptr;
}

// All names, for texts.
inline std::string cache_format_names(bool latent) {
  std::string names;
  for (const CacheFormat& format : kCacheFormats)
    if (latent ? format.latent : format.plain) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

// A record of fp8_ds_mla.
struct RecordLayout {
  static constexpr uint32_t kLatent = 512, kTile = 128, kRope = 64;  // values; a scale for each tile
  static constexpr uint32_t kScalesAt = 512, kRopeAt = 528, kBytes = 656;
};

// The format of a problem's cache, with the reasons against it in the words of all who keep codes: the name, scales of the call, sizes
// that a format does not have. Null where keys are ragged or the name is unknown. max_rotated: values of the longest row of 4 bits,
// a power of two.
inline const CacheFormat* check_cache_format(const anyattn_problem& problem, bool latent, uint32_t max_rotated,
                                             Reasons& reasons) {
  const bool scaled = anyattn_problem_has(&problem, ANYATTN_FEATURE_KV_SCALES) ||
                      anyattn_problem_has(&problem, ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  if (problem.key_source == ANYATTN_KEYS_RAGGED) {
    if (scaled) reasons.add(ANYATTN_REASON_COMBINATION, "kv_scales", "with ragged keys", "with paged keys");
    return nullptr;
  }
  const char* name = problem.kv_cache_dtype ? problem.kv_cache_dtype : "(none)";
  const CacheFormat* format = find_cache_format(name, latent);
  if (!format) {
    reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", name, cache_format_names(latent));
    return nullptr;
  }
  if (scaled && !format->scaled_by_call())
    reasons.add(ANYATTN_REASON_COMBINATION, "kv_scales", text("with ", name), "without",
                "the rows of this format have scales of their own");
  const auto require = [&](bool good, uint32_t id, const char* field, uint32_t size, const std::string& allowed,
                           const char* hint) {
    if (!good) reasons.add(id, field, text(size, " with ", name), text(allowed, " with ", name), hint);
  };
  if (format->coding == Coding::kInt4Scaled) {
    const auto rotates = [&](uint32_t size) { return size >= 16 && size <= max_rotated && (size & (size - 1)) == 0; };
    const std::string allowed = text("powers of two from 16 to ", max_rotated);
    constexpr const char* kHint =
        "its rows are rotated by a Hadamard matrix of their size; int8_per_token_head takes the others";
    require(rotates(problem.head_size), ANYATTN_REASON_HEAD_SIZE, "head_size", problem.head_size, allowed, kHint);
    require(rotates(problem.head_size_v), ANYATTN_REASON_HEAD_SIZE, "head_size_v", problem.head_size_v, allowed, kHint);
  }
  if (format->coding == Coding::kRecord) {
    using Record = RecordLayout;
    require(problem.kv_lora_rank == Record::kLatent, ANYATTN_REASON_MLA_SIZE, "kv_lora_rank", problem.kv_lora_rank,
            text(Record::kLatent), "");
    require(problem.qk_rope_head_dim == Record::kRope, ANYATTN_REASON_MLA_SIZE, "qk_rope_head_dim", problem.qk_rope_head_dim,
            text(Record::kRope), "");
    if (problem.q_dtype == ANYATTN_DTYPE_FLOAT32)
      reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", text(name, " with q_dtype float32"),
                  text(name, " with q_dtype float16, bfloat16"));
  }
  return format;
}

// Kernels read scales, and a record's rope part, right behind a row's codes. Throws where they lie elsewhere.
inline void check_beside(const PlaneLayout& rows, uint64_t code_bytes, const PlaneLayout& beside, const char* name) {
  if (beside.byte_offset != rows.byte_offset + code_bytes || beside.token_bytes != rows.token_bytes ||
      beside.head_bytes != rows.head_bytes)
    throw Error(ANYATTN_INVALID_ARGUMENT, "plane ", name, " does not stand behind the rows; needed: ", code_bytes,
                " bytes after each row's start");
}

struct CacheSizes {
  uint32_t block_size, num_kv_heads, head_size, head_size_v;  // MLA: head_size is the latent and the rope part together
};

// K and V: gives the two usual layouts, K before V in a block: HND (rows of a head together), then NHD.
inline void give_format_specs(const CacheFormat& format, const CacheSizes& sizes, const SpecSink& accept) {
  const int64_t element = dtype_bytes(format.dtype), tokens = sizes.block_size, heads = sizes.num_kv_heads;
  const int64_t k_row = format.row_bytes(sizes.head_size), v_row = format.row_bytes(sizes.head_size_v);
  const uint64_t k_bytes = round_to_cache(static_cast<uint64_t>(tokens * heads * k_row));
  const uint64_t block_bytes = k_bytes + round_to_cache(static_cast<uint64_t>(tokens * heads * v_row));
  for (const bool head_major : {true, false}) {
    SpecBuilder builder(head_major ? "HND" : "NHD", sizes.block_size, block_bytes, kCacheAlignment);
    const auto add = [&](uint32_t role, uint32_t scale_role, uint32_t size, int64_t row, uint64_t at) {
      const int64_t token = head_major ? row : heads * row, head = head_major ? tokens * row : row;
      builder.plane(role, format.dtype, {tokens, heads, size / format.packed}, {token, head, element}, at);
      if (format.scale_bytes)
        builder.plane(scale_role, ANYATTN_DTYPE_FLOAT32, {tokens, heads}, {token, head}, at + format.code_bytes(size));
    };
    add(ANYATTN_PLANE_K, ANYATTN_PLANE_K_SCALE, sizes.head_size, k_row, 0);
    add(ANYATTN_PLANE_V, ANYATTN_PLANE_V_SCALE, sizes.head_size_v, v_row, k_bytes);
    accept(builder.get());
  }
}

// Layout of an accepted spec of such a cache. Throws where it does not fit.
inline CacheLayout read_format_spec(const CacheFormat& format, const CacheSizes& sizes, const anyattn_kv_cache_spec* spec) {
  CacheLayout layout = read_spec(spec, sizes.block_size);
  const auto read = [&](uint32_t role, uint32_t scale_role, const char* name, uint32_t size) {
    const PlaneLayout rows =
        read_dense_plane(*spec, role, name, format.dtype, {sizes.block_size, sizes.num_kv_heads, size / format.packed});
    if (!format.scale_bytes) return rows;
    const std::string scale_name = std::string(name) + " scale";
    const anyattn_plane scale = find_plane(*spec, scale_role);
    read_plane(scale, scale_name.c_str(), ANYATTN_DTYPE_FLOAT32, {sizes.block_size, sizes.num_kv_heads});
    check_beside(rows, format.code_bytes(size), {scale.byte_offset, scale.strides[1], scale.strides[2]}, scale_name.c_str());
    return rows;
  };
  layout.k = read(ANYATTN_PLANE_K, ANYATTN_PLANE_K_SCALE, "K", sizes.head_size);
  layout.v = read(ANYATTN_PLANE_V, ANYATTN_PLANE_V_SCALE, "V", sizes.head_size_v);
  return layout;
}

inline void give_latent_spec(const CacheFormat& format, const CacheSizes& sizes, const SpecSink& accept) {
  using Record = RecordLayout;
  const bool records = format.coding == Coding::kRecord;
  const int64_t element = dtype_bytes(format.dtype), row = records ? Record::kBytes : sizes.head_size * element;
  SpecBuilder builder(records ? "records" : "latent", sizes.block_size,
                      round_to_cache(static_cast<uint64_t>(sizes.block_size * row)), kCacheAlignment);
  if (records) {
    builder.plane(ANYATTN_PLANE_LATENT_C, format.dtype, {sizes.block_size, Record::kLatent}, {row, 1}, 0);
    builder.plane(ANYATTN_PLANE_LATENT_SCALE, ANYATTN_DTYPE_FLOAT32, {sizes.block_size, Record::kLatent / Record::kTile},
                  {row, 4}, Record::kScalesAt);
    builder.plane(ANYATTN_PLANE_LATENT_PE, ANYATTN_DTYPE_BFLOAT16, {sizes.block_size, Record::kRope}, {row, 2},
                  Record::kRopeAt);
  } else {
    builder.plane(ANYATTN_PLANE_LATENT, format.dtype, {sizes.block_size, sizes.head_size}, {row, element}, 0);
  }
  accept(builder.get());
}

inline CacheLayout read_latent_spec(const CacheFormat& format, const CacheSizes& sizes, const anyattn_kv_cache_spec* spec) {
  using Record = RecordLayout;
  CacheLayout layout = read_spec(spec, sizes.block_size);
  const auto read = [&](uint32_t role, const char* name, uint32_t dtype, uint32_t size) {
    return read_dense_plane(*spec, role, name, dtype, {sizes.block_size, size});
  };
  if (format.coding != Coding::kRecord) {
    layout.k = layout.v = read(ANYATTN_PLANE_LATENT, "latent", format.dtype, sizes.head_size);
    return layout;
  }
  layout.k = layout.v = read(ANYATTN_PLANE_LATENT_C, "latent codes", format.dtype, Record::kLatent);
  const uint32_t scales = Record::kLatent / Record::kTile;
  check_beside(layout.k, Record::kScalesAt, read(ANYATTN_PLANE_LATENT_SCALE, "latent scale", ANYATTN_DTYPE_FLOAT32, scales),
               "latent scale");
  check_beside(layout.k, Record::kRopeAt, read(ANYATTN_PLANE_LATENT_PE, "latent rope", ANYATTN_DTYPE_BFLOAT16, Record::kRope),
               "latent rope");
  return layout;
}

}  // namespace anyattn
