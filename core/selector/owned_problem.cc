// SPDX-License-Identifier: Apache-2.0
#include "selector/owned_problem.h"

#include <fmt/format.h>

#include <bit>

#include "anyattn/util.h"
#include "selector/problem_text.h"

namespace anyattn::selector {
namespace {

constexpr uint32_t kMaxPlanes = 16;

}  // namespace

OwnedProblem::OwnedProblem(const anyattn_problem& given) {
  anyattn_read_struct(&plain_, sizeof plain_, &given);
  if (plain_.features) features_.assign(plain_.features, plain_.features + plain_.num_feature_words);
  while (!features_.empty() && features_.back() == 0) features_.pop_back();
  if (plain_.kv_cache_dtype) kv_cache_dtype_ = plain_.kv_cache_dtype;
  plain_.struct_size = ANYATTN_PROBLEM_SIZE;
  plain_.num_feature_words = 0;
  plain_.features = nullptr;
  plain_.kv_cache_dtype = nullptr;

  // What is not read must not tell two problems apart.
  if (!has(ANYATTN_FEATURE_MLA))
    plain_.kv_lora_rank = plain_.qk_nope_head_dim = plain_.qk_rope_head_dim = plain_.v_head_dim = 0;
  if (!has(ANYATTN_FEATURE_WINDOW)) plain_.window_left = plain_.window_right = 0;
  if (!has(ANYATTN_FEATURE_SOFT_CAP)) plain_.logits_soft_cap = 0;
  if (!has(ANYATTN_FEATURE_CHUNKED_LOCAL)) plain_.chunk_size = 0;
  if (!has(ANYATTN_FEATURE_SPARSE_TOPK)) plain_.top_k = 0;
  if (!has(ANYATTN_FEATURE_CP_DECODE) && !has(ANYATTN_FEATURE_CP_PREFILL))
    plain_.cp_world_size = plain_.cp_rank = plain_.cp_interleave = 0;
  if (!has(ANYATTN_FEATURE_OUT_BLOCK_SCALES)) plain_.out_block_size = 0;
  if (!has(ANYATTN_FEATURE_GRAPH)) plain_.graph_level = 0;
}

anyattn_problem OwnedProblem::view() const {
  anyattn_problem problem = plain_;
  problem.num_feature_words = static_cast<uint32_t>(features_.size());
  problem.features = features_.empty() ? nullptr : features_.data();
  problem.kv_cache_dtype = kv_cache_dtype_ ? kv_cache_dtype_->c_str() : nullptr;
  return problem;
}

bool OwnedProblem::has(uint32_t feature) const {
  return feature / 64 < features_.size() && ((features_[feature / 64] >> (feature % 64)) & 1) != 0;
}

std::string OwnedProblem::key() const {
  const anyattn_problem problem = view();
  std::string key;
  for (const uint64_t word : features_) key += fmt::format("{:x}.", word);
  for (const Field& field : fields())
    if (!field.is_feature && field.name != "kv_cache_dtype" && field.name != "graph_level") key += ';' + field.text(problem);
  // Numbers where the text folds several values into one word; the open name last, so that nothing in it can pass for a field.
  return key + fmt::format(";{};{}", problem.graph_level, kv_cache_dtype_ ? '=' + *kv_cache_dtype_ : "");
}

OwnedSpec::OwnedSpec(const anyattn_kv_cache_spec& given) {
  anyattn_read_struct(&plain_, sizeof plain_, &given);
  if (plain_.name) name_ = plain_.name;
  const auto* bytes = reinterpret_cast<const char*>(plain_.planes);
  for (uint32_t i = 0; bytes && i < plain_.num_planes && i < kMaxPlanes; ++i) {
    anyattn_plane plane;
    anyattn_read_struct(&plane, sizeof plane, bytes + size_t{i} * plain_.plane_stride);
    plane.struct_size = ANYATTN_PLANE_SIZE;
    planes_.push_back(plane);
  }
  plain_.struct_size = ANYATTN_KV_CACHE_SPEC_SIZE;
  plain_.plane_stride = sizeof(anyattn_plane);
  plain_.planes = nullptr;
  plain_.name = nullptr;
}

anyattn_kv_cache_spec OwnedSpec::view() const {
  anyattn_kv_cache_spec spec = plain_;
  spec.num_planes = static_cast<uint32_t>(planes_.size());
  spec.planes = planes_.data();
  spec.name = name_.c_str();
  return spec;
}

std::string validate_spec(const OwnedSpec& spec, uint32_t block_size) {
  const anyattn_kv_cache_spec view = spec.view();
  if (spec.planes().empty()) return "a spec without planes";
  if (spec.num_planes_given() != spec.planes().size())
    return fmt::format("num_planes {}: 1 to {}, with planes given", spec.num_planes_given(), kMaxPlanes);
  if (view.block_size != block_size) return fmt::format("block_size {} although {} was asked for", view.block_size, block_size);
  if (view.alignment < 16 || !std::has_single_bit(view.alignment))
    return fmt::format("alignment {}: a power of two, at least 16", view.alignment);
  if (view.block_bytes == 0 || view.block_bytes % view.alignment != 0)
    return fmt::format("block_bytes {}: a multiple of alignment {}", view.block_bytes, view.alignment);
  for (const anyattn_plane& plane : spec.planes()) {
    const std::string_view role = plane_role_name(plane.role);
    if (plane.ndim < 2 || plane.ndim > ANYATTN_PLANE_MAX_DIMS)
      return fmt::format("plane {}: ndim {}: 2 to {}", role, plane.ndim, ANYATTN_PLANE_MAX_DIMS);
    if (plane.dims[0] != 0 || plane.strides[0] != static_cast<int64_t>(view.block_bytes))
      return fmt::format("plane {}: dims[0] {} must be 0 and strides[0] {} must be block_bytes {}", role, plane.dims[0],
                         plane.strides[0], view.block_bytes);
    const uint64_t element = (uint64_t{(plane.dtype >> 8) & 0xffu} + 7) / 8;
    if (element == 0 || plane.byte_offset >= view.block_bytes)
      return fmt::format("plane {}: dtype {:#x} at byte_offset {} of block_bytes {}", role, plane.dtype, plane.byte_offset,
                         view.block_bytes);
    uint64_t end = plane.byte_offset + element;  // below 2^64: each step is checked against block_bytes
    for (uint32_t d = 1; d < plane.ndim; ++d) {
      if (plane.dims[d] <= 0 || plane.strides[d] < 0)
        return fmt::format("plane {}: dims[{}] {} must be > 0 and strides[{}] {} >= 0", role, d, plane.dims[d], d,
                           plane.strides[d]);
      const auto steps = static_cast<uint64_t>(plane.dims[d] - 1);
      const auto stride = static_cast<uint64_t>(plane.strides[d]);
      if (stride != 0 && steps > view.block_bytes / stride) return fmt::format("plane {}: reaches past block_bytes", role);
      end += steps * stride;
      if (end > view.block_bytes)
        return fmt::format("plane {}: its last byte {} lies past block_bytes {}", role, end, view.block_bytes);
    }
  }
  const uint64_t digest = anyattn_kv_cache_spec_digest(&view);
  if (view.digest != digest)
    return fmt::format("digest {:#x}: anyattn_kv_cache_spec_digest() gives {:#x}", view.digest, digest);
  return "";
}

}  // namespace anyattn::selector
