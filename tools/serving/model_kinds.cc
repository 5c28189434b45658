// SPDX-License-Identifier: Apache-2.0
#include "serving/model_kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "anyattn/runtime.hpp"
#include "common/failure.h"

namespace anyattn::tools {
namespace {

struct ModelHandle {
  anyattn_model* model = nullptr;
  ~ModelHandle() { anyattn_model_destroy(model); }
};

// Features whose inputs `run` draws; everything else would need tensors it does not have.
constexpr uint64_t kFed = UINT64_C(1) << ANYATTN_FEATURE_WINDOW | UINT64_C(1) << ANYATTN_FEATURE_SOFT_CAP |
                          UINT64_C(1) << ANYATTN_FEATURE_ALIBI | UINT64_C(1) << ANYATTN_FEATURE_ALIBI_SQRT |
                          UINT64_C(1) << ANYATTN_FEATURE_SINKS | UINT64_C(1) << ANYATTN_FEATURE_CHUNKED_LOCAL |
                          UINT64_C(1) << ANYATTN_FEATURE_MLA | UINT64_C(1) << ANYATTN_FEATURE_LSE |
                          UINT64_C(1) << ANYATTN_FEATURE_BATCH_INVARIANT;

void check_fed(const std::string& id, const anyattn_layer_kind& kind) {
  if (!kind.problem) {
    throw Failure(kExitUsage, fmt::format("run {}: layers of kind '{}' cannot be run: {}", id, kind.label,
                                          kind.unsupported ? kind.unsupported : "no problem describes them"));
  }
  const uint64_t features = kind.problem->num_feature_words > 0 ? kind.problem->features[0] : 0;
  if (kind.problem->key_source != ANYATTN_KEYS_PAGED || (features & ~kFed) != 0) {
    throw Failure(
        kExitUsage,
        fmt::format("run {}: layers of kind '{}' are not causal attention over a paged cache, which is what a serving "
                    "trace replays; allowed: decoders with full, sliding, chunked or MLA layers",
                    id, kind.label));
  }
}

std::unique_ptr<KindSpec> make_kind(const ModelRequest& request, const anyattn_layer_kind& kind, uint32_t index) {
  auto spec = std::make_unique<KindSpec>();
  spec->label = kind.label;
  spec->index = index;
  spec->num_layers = request.layers == 0 ? kind.num_layers : request.layers;
  spec->softmax_scale = kind.softmax_scale;
  spec->problem = *kind.problem;
  spec->features = kind.problem->num_feature_words > 0 ? kind.problem->features[0] : 0;
  // Prefill over a cached context is merged from parts, so MLA always needs them.
  if (spec->has(ANYATTN_FEATURE_MLA)) spec->features |= UINT64_C(1) << ANYATTN_FEATURE_LSE;
  spec->kv_cache_dtype = request.kv_cache_dtype.empty() ? "auto" : request.kv_cache_dtype;
  spec->problem.features = &spec->features;
  spec->problem.num_feature_words = 1;
  spec->problem.kv_cache_dtype = spec->kv_cache_dtype.c_str();
  spec->problem.block_size = request.block_size;
  return spec;
}

}  // namespace

int32_t KindSpec::keys_to_the_left() const {
  int32_t left = has(ANYATTN_FEATURE_WINDOW) ? problem.window_left : -1;
  if (has(ANYATTN_FEATURE_CHUNKED_LOCAL)) {
    const auto chunk_left = static_cast<int32_t>(problem.chunk_size) - 1;
    left = left < 0 ? chunk_left : std::min(left, chunk_left);
  }
  return left;
}

uint64_t KindSpec::visible_keys(uint32_t position) const {
  uint64_t keys = uint64_t{position} + 1;
  if (has(ANYATTN_FEATURE_WINDOW) && problem.window_left >= 0)
    keys = std::min<uint64_t>(keys, uint64_t(problem.window_left) + 1);
  if (has(ANYATTN_FEATURE_CHUNKED_LOCAL)) keys = std::min<uint64_t>(keys, position % problem.chunk_size + 1);
  return keys;
}

ModelKinds load_model_kinds(const ModelRequest& request) {
  ModelHandle handle;
  const char* file = request.models_file.empty() ? nullptr : request.models_file.c_str();
  try {
    anyattn::check(anyattn_model_load, file, request.id.c_str(), request.dtype, &handle.model);
  } catch (const RuntimeError& error) {
    throw Failure(kExitUsage, error.what());
  }
  anyattn_model_info info{};
  info.struct_size = ANYATTN_MODEL_INFO_SIZE;
  anyattn::check(anyattn_model_get_info, handle.model, &info);
  ModelKinds model{info.id, info.max_context, info.dtype, {}};
  for (uint32_t i = 0; i < info.num_layer_kinds; ++i) {
    anyattn_layer_kind kind{};
    kind.struct_size = ANYATTN_LAYER_KIND_SIZE;
    anyattn::check(anyattn_model_get_layer_kind, handle.model, i, &kind);
    check_fed(model.id, kind);
    model.kinds.push_back(make_kind(request, kind, i));
  }
  return model;
}

}  // namespace anyattn::tools
