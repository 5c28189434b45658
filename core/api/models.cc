// SPDX-License-Identifier: Apache-2.0
// The C API of models.h over the table of models.
#include "anyattn/models.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "api/guard.h"
#include "api/library_path.h"
#include "config/json_text.h"
#include "config/model_layers.h"
#include "device/status_error.h"

struct anyattn_model {
  anyattn::config::ModelFacts facts;
  uint32_t dtype = ANYATTN_DTYPE_NONE;
  std::vector<anyattn::config::LayerKind> kinds;
};

namespace {

using anyattn::StatusError;
using anyattn::api::guarded;
using anyattn::api::require_given;
using anyattn::config::ModelFacts;
using anyattn::config::ModelTable;

ModelTable read_table(const char* models_file) {
  return anyattn::config::read_model_table(models_file ? models_file : anyattn::api::installed_file("models.yaml"));
}

uint32_t chosen_dtype(const ModelFacts& facts, uint32_t dtype) {
  if (dtype == ANYATTN_DTYPE_NONE) dtype = facts.dtype;
  if (dtype == ANYATTN_DTYPE_NONE)
    throw StatusError(ANYATTN_INVALID_ARGUMENT, facts.id + ": the table of models names no dtype for it; give one");
  return dtype;
}

const char* dtype_name(uint32_t dtype) {
  switch (dtype) {
    case ANYATTN_DTYPE_FLOAT32:
      return "\"float32\"";
    case ANYATTN_DTYPE_FLOAT16:
      return "\"float16\"";
    case ANYATTN_DTYPE_BFLOAT16:
      return "\"bfloat16\"";
    default:
      return "null";
  }
}

// Fills what fits of the caller's struct and leaves its struct_size.
template <class Struct>
void fill(Struct* out, const Struct& own, uint32_t own_size, const char* function) {
  const uint32_t given = out->struct_size;
  if (given < sizeof(uint32_t))
    throw StatusError(ANYATTN_INVALID_ARGUMENT, std::string(function) + ": struct_size is " + std::to_string(given) +
                                                    "; set it to the end offset of the last field you know (" +
                                                    std::to_string(own_size) + " here)");
  std::memcpy(reinterpret_cast<char*>(out) + sizeof given, reinterpret_cast<const char*>(&own) + sizeof given,
              (given < own_size ? given : own_size) - sizeof given);
}

}  // namespace

int32_t anyattn_model_load(const char* models_file, const char* id, uint32_t dtype, anyattn_model** model,
                           anyattn_error* error) {
  return guarded("anyattn_model_load", error, [&] {
    require_given(id, "anyattn_model_load", "id");
    require_given(model, "anyattn_model_load", "model");
    *model = nullptr;
    const ModelTable table = read_table(models_file);
    auto made = std::make_unique<anyattn_model>();
    made->facts = anyattn::config::find_model(table, id);
    made->dtype = chosen_dtype(made->facts, dtype);
    made->kinds = anyattn::config::layer_kinds(made->facts, made->dtype, table.file);
    for (auto& kind : made->kinds) kind.problem.features = &kind.features;
    *model = made.release();
  });
}

void anyattn_model_destroy(anyattn_model* model) { delete model; }

int32_t anyattn_model_get_info(const anyattn_model* model, anyattn_model_info* info, anyattn_error* error) {
  return guarded("anyattn_model_get_info", error, [&] {
    require_given(model, "anyattn_model_get_info", "model");
    require_given(info, "anyattn_model_get_info", "info");
    anyattn_model_info own{};
    own.num_layer_kinds = static_cast<uint32_t>(model->kinds.size());
    own.id = model->facts.id.c_str();
    own.kind = model->facts.kind.c_str();
    own.num_layers = model->facts.num_layers;
    own.hidden_size = model->facts.hidden_size;
    own.max_context = model->facts.max_context;
    own.dtype = model->dtype;
    fill(info, own, ANYATTN_MODEL_INFO_SIZE, "anyattn_model_get_info");
  });
}

int32_t anyattn_model_get_layer_kind(const anyattn_model* model, uint32_t index, anyattn_layer_kind* kind,
                                     anyattn_error* error) {
  return guarded("anyattn_model_get_layer_kind", error, [&] {
    require_given(model, "anyattn_model_get_layer_kind", "model");
    require_given(kind, "anyattn_model_get_layer_kind", "kind");
    if (index >= model->kinds.size())
      throw StatusError(ANYATTN_INVALID_ARGUMENT, "anyattn_model_get_layer_kind: index " + std::to_string(index) + "; " +
                                                      model->facts.id + " has " + std::to_string(model->kinds.size()) +
                                                      " kinds of layers");
    const anyattn::config::LayerKind& source = model->kinds[index];
    const bool described = source.unsupported.empty();
    anyattn_layer_kind own{};
    own.num_layers = source.num_layers;
    own.label = source.label.c_str();
    own.unsupported = described ? nullptr : source.unsupported.c_str();
    own.problem = described ? &source.problem : nullptr;
    own.softmax_scale = source.softmax_scale;
    own.max_keys = source.max_keys;
    fill(kind, own, ANYATTN_LAYER_KIND_SIZE, "anyattn_model_get_layer_kind");
  });
}

int32_t anyattn_models_list(const char* models_file, char** json, anyattn_error* error) {
  return guarded("anyattn_models_list", error, [&] {
    require_given(json, "anyattn_models_list", "json");
    *json = nullptr;
    const ModelTable table = read_table(models_file);
    std::string text = "{\"file\": " + anyattn::config::json_quote(table.file) + ", \"models\": [";
    for (const ModelFacts& model : table.models) {
      if (&model != &table.models.front()) text += ", ";
      text += "{\"id\": " + anyattn::config::json_quote(model.id) + ", \"kind\": " + anyattn::config::json_quote(model.kind) +
              ", \"layers\": " + std::to_string(model.num_layers) + ", \"dtype\": " + dtype_name(model.dtype) + "}";
    }
    text += "]}";
    *json = strdup(text.c_str());
    if (!*json) throw std::bad_alloc();
  });
}
