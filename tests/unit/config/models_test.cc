// SPDX-License-Identifier: Apache-2.0
// The C API of models: what a model's layers ask for.
#include "anyattn/models.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shared_dir.h"
#include "unit/config/config_fixture.h"

using anyattn::test::holds;
using anyattn::test::TempDir;

namespace {

struct Destroy {
  void operator()(anyattn_model* model) const { anyattn_model_destroy(model); }
};
using Model = std::unique_ptr<anyattn_model, Destroy>;

const std::string kOwnTable = ANYATTN_SOURCE_DIR "/config/models.yaml";

Model load(const std::string& id, uint32_t dtype = ANYATTN_DTYPE_BFLOAT16, const std::string& file = kOwnTable) {
  char text[1000] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  anyattn_model* model = nullptr;
  const int32_t status = anyattn_model_load(file.c_str(), id.c_str(), dtype, &model, &error);
  REQUIRE_MESSAGE(status == ANYATTN_OK, text);
  return Model(model);
}

anyattn_model_info info_of(const Model& model) {
  anyattn_model_info info{};
  info.struct_size = ANYATTN_MODEL_INFO_SIZE;
  REQUIRE(anyattn_model_get_info(model.get(), &info, nullptr) == ANYATTN_OK);
  return info;
}

std::vector<anyattn_layer_kind> kinds_of(const Model& model) {
  std::vector<anyattn_layer_kind> kinds(info_of(model).num_layer_kinds);
  for (uint32_t i = 0; i < kinds.size(); ++i) {
    kinds[i].struct_size = ANYATTN_LAYER_KIND_SIZE;
    REQUIRE(anyattn_model_get_layer_kind(model.get(), i, &kinds[i], nullptr) == ANYATTN_OK);
  }
  return kinds;
}

uint64_t features(const anyattn_layer_kind& kind) { return kind.problem->features[0]; }
uint64_t bits(std::initializer_list<uint32_t> list) {
  uint64_t out = 0;
  for (uint32_t bit : list) out |= uint64_t{1} << bit;
  return out;
}

struct Failure {
  int32_t status;
  std::string text;
};
Failure failure(const std::string& file, const char* id, uint32_t dtype = ANYATTN_DTYPE_BFLOAT16) {
  char text[2000] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  anyattn_model* model = nullptr;
  const int32_t status = anyattn_model_load(file.c_str(), id, dtype, &model, &error);
  anyattn_model_destroy(model);
  CHECK(error.status == status);
  return {status, text};
}

}  // namespace

TEST_CASE("models_plain_decoder_is_one_kind_of_paged_layers") {
  const Model model = load("meta-llama/Llama-3.1-8B", ANYATTN_DTYPE_NONE);
  const anyattn_model_info info = info_of(model);
  CHECK(std::string(info.id) == "meta-llama/Llama-3.1-8B");
  CHECK(std::string(info.kind) == "decoder");
  CHECK(info.num_layers == 32);
  CHECK(info.hidden_size == 4096);
  CHECK(info.max_context == 131072);
  CHECK(info.dtype == ANYATTN_DTYPE_BFLOAT16);
  const auto kinds = kinds_of(model);
  REQUIRE(kinds.size() == 1);
  CHECK(std::string(kinds[0].label) == "full");
  CHECK(kinds[0].unsupported == nullptr);
  CHECK(kinds[0].num_layers == 32);
  CHECK(kinds[0].softmax_scale == doctest::Approx(1 / std::sqrt(128.0)));
  const anyattn_problem& problem = *kinds[0].problem;
  CHECK(problem.struct_size == ANYATTN_PROBLEM_SIZE);
  CHECK(problem.num_feature_words == 1);
  CHECK(features(kinds[0]) == 0);
  CHECK(problem.num_q_heads == 32);
  CHECK(problem.num_kv_heads == 8);
  CHECK(problem.head_size == 128);
  CHECK(problem.head_size_v == 128);
  CHECK(problem.q_dtype == ANYATTN_DTYPE_BFLOAT16);
  CHECK(problem.out_dtype == ANYATTN_DTYPE_BFLOAT16);
  CHECK(problem.key_source == ANYATTN_KEYS_PAGED);
  CHECK(problem.attention_type == ANYATTN_TYPE_DECODER);
  CHECK(problem.phase == ANYATTN_PHASE_BOTH);
  CHECK(problem.block_size == 0);
  CHECK(std::string(problem.kv_cache_dtype) == "auto");
}

TEST_CASE("models_dtype_is_the_callers_else_the_tables_else_asked_for") {
  CHECK(kinds_of(load("Llama-3.1-8B", ANYATTN_DTYPE_FLOAT32))[0].problem->q_dtype == ANYATTN_DTYPE_FLOAT32);
  CHECK(kinds_of(load("gemma-2-9b", ANYATTN_DTYPE_NONE))[0].problem->q_dtype == ANYATTN_DTYPE_FLOAT32);
  const Failure none = failure(kOwnTable, "bloom-7b1", ANYATTN_DTYPE_NONE);
  CHECK(none.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(none.text == "bigscience/bloom-7b1: the table of models names no dtype for it; give one");
}

TEST_CASE("models_windows_caps_sinks_and_chunks_set_their_features") {
  struct Case {
    const char* id;
    uint32_t index;
    const char* label;
    uint64_t features;
    int32_t window_left;
    double soft_cap;
    uint32_t chunk_size;
  };
  for (const Case& c : {
           Case{"gemma-2-9b", 0, "sliding", bits({ANYATTN_FEATURE_WINDOW, ANYATTN_FEATURE_SOFT_CAP}), 4095, 50.0, 0},
           Case{"gemma-2-9b", 1, "full", bits({ANYATTN_FEATURE_SOFT_CAP}), 0, 50.0, 0},
           Case{"gemma-3-27b-it", 0, "sliding", bits({ANYATTN_FEATURE_WINDOW}), 1023, 0, 0},
           Case{"gpt-oss-20b", 0, "sliding", bits({ANYATTN_FEATURE_WINDOW, ANYATTN_FEATURE_SINKS}), 127, 0, 0},
           Case{"gpt-oss-20b", 1, "full", bits({ANYATTN_FEATURE_SINKS}), 0, 0, 0},
           Case{"Llama-4-Scout-17B-16E", 0, "chunked", bits({ANYATTN_FEATURE_CHUNKED_LOCAL}), 0, 0, 8192},
           Case{"bloom-7b1", 0, "full", bits({ANYATTN_FEATURE_ALIBI}), 0, 0, 0},
           Case{"Step-Audio-EditX", 0, "full", bits({ANYATTN_FEATURE_ALIBI_SQRT}), 0, 0, 0},
           Case{"jina-embeddings-v2-base-en", 0, "encoder", bits({ANYATTN_FEATURE_ALIBI_SYMMETRIC, ANYATTN_FEATURE_NON_CAUSAL}),
                0, 0, 0},
       }) {
    const Model model = load(c.id);
    const anyattn_layer_kind kind = kinds_of(model).at(c.index);
    CAPTURE(c.id);
    CHECK(std::string(kind.label) == c.label);
    CHECK(features(kind) == c.features);
    CHECK(kind.problem->window_left == c.window_left);
    CHECK(kind.problem->window_right == (c.window_left ? -1 : 0));
    CHECK(kind.problem->logits_soft_cap == c.soft_cap);
    CHECK(kind.problem->chunk_size == c.chunk_size);
  }
  CHECK(kinds_of(load("gemma-3-27b-it"))[0].softmax_scale == 0.07715167);
  const Model mimo = load("MiMo-V2-Flash");
  CHECK(kinds_of(mimo)[0].problem->head_size == 192);
  CHECK(kinds_of(mimo)[0].problem->head_size_v == 128);
  CHECK(kinds_of(mimo)[1].problem->num_kv_heads == 4);
}

TEST_CASE("models_latent_attention_is_one_head_over_the_latent_row") {
  const Model model = load("DeepSeek-V3.2");
  const anyattn_layer_kind kind = kinds_of(model).at(0);
  const anyattn_problem& problem = *kind.problem;
  CHECK(std::string(kind.label) == "mla_topk");
  CHECK(features(kind) == bits({ANYATTN_FEATURE_MLA, ANYATTN_FEATURE_LSE, ANYATTN_FEATURE_SPARSE_TOPK}));
  CHECK(problem.num_q_heads == 128);
  CHECK(problem.num_kv_heads == 1);
  CHECK(problem.head_size == 576);
  CHECK(problem.head_size_v == 512);
  CHECK(problem.kv_lora_rank == 512);
  CHECK(problem.qk_nope_head_dim == 128);
  CHECK(problem.qk_rope_head_dim == 64);
  CHECK(problem.v_head_dim == 128);
  CHECK(problem.top_k == 2048);
  CHECK(kind.softmax_scale == doctest::Approx(1 / std::sqrt(192.0)));
  CHECK(std::string(kinds_of(load("DeepSeek-V3"))[0].label) == "mla");
  CHECK(features(kinds_of(load("DeepSeek-V3")).at(0)) == bits({ANYATTN_FEATURE_MLA, ANYATTN_FEATURE_LSE}));
}

TEST_CASE("models_encoders_and_cross_attention_have_ragged_keys") {
  const Model whisper = load("whisper-large-v3");
  const auto kinds = kinds_of(whisper);
  REQUIRE(kinds.size() == 3);
  const char* labels[] = {"encoder", "decoder", "cross"};
  const uint32_t types[] = {ANYATTN_TYPE_ENCODER, ANYATTN_TYPE_DECODER, ANYATTN_TYPE_ENCODER_DECODER};
  const uint32_t max_keys[] = {1500, 0, 1500};
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(std::string(kinds[i].label) == labels[i]);
    CHECK(kinds[i].problem->attention_type == types[i]);
    CHECK(kinds[i].problem->key_source == (i == 1 ? ANYATTN_KEYS_PAGED : ANYATTN_KEYS_RAGGED));
    CHECK((kinds[i].problem->kv_cache_dtype == nullptr) == (i != 1));
    CHECK(features(kinds[i]) == (i == 1 ? 0 : bits({ANYATTN_FEATURE_NON_CAUSAL})));
    CHECK(kinds[i].max_keys == max_keys[i]);
  }
  const Model bert = load("bert-base-uncased");
  CHECK(kinds_of(bert)[0].problem->attention_type == ANYATTN_TYPE_ENCODER_ONLY);
}

TEST_CASE("models_layers_no_problem_describes_are_named_and_kept_apart") {
  struct Case {
    const char* id;
    uint32_t index;
    const char* label;
    uint32_t num_layers;
    const char* part;
  };
  for (const Case& c :
       {Case{"Qwen3-Next-80B-A3B", 1, "linear", 36, "linear attention"}, Case{"Jamba-v0.1", 1, "ssm", 28, "state space"},
        Case{"MiniMax-M3", 1, "sparse_blocks", 57, "chosen blocks of keys"}}) {
    const Model model = load(c.id);
    const auto kinds = kinds_of(model);
    CAPTURE(c.id);
    REQUIRE(kinds.size() == 2);
    CHECK(kinds[0].unsupported == nullptr);
    const anyattn_layer_kind& kind = kinds.at(c.index);
    CHECK(std::string(kind.label) == c.label);
    CHECK(kind.num_layers == c.num_layers);
    CHECK(kind.problem == nullptr);
    CHECK(kind.softmax_scale == 0);
    REQUIRE(kind.unsupported != nullptr);
    CHECK(holds(kind.unsupported, c.part));
  }
  CHECK(kinds_of(load("MiniMax-M3"))[0].num_layers == 3);
}

TEST_CASE("models_ids_match_exactly_then_by_case_then_by_unique_end") {
  const TempDir folder;
  const std::string row =
      ", kind: decoder, layers: 1, hidden: 8, position: rope, attention: [{n: 1, kind: full, q: 1, kv: 1, head: 8}]}\n";
  const std::string file =
      folder.write("m.yaml", "models:\n- {id: a/Tiny-1B" + row + "- {id: b/Tiny-1B" + row + "- {id: b/Small-3B" + row);
  CHECK(std::string(info_of(load("b/Tiny-1B", ANYATTN_DTYPE_FLOAT32, file)).id) == "b/Tiny-1B");
  CHECK(std::string(info_of(load("B/TINY-1b", ANYATTN_DTYPE_FLOAT32, file)).id) == "b/Tiny-1B");
  CHECK(std::string(info_of(load("small-3b", ANYATTN_DTYPE_FLOAT32, file)).id) == "b/Small-3B");
  const Failure two = failure(file, "tiny-1b");
  CHECK(two.status == ANYATTN_NOT_FOUND);
  CHECK(holds(two.text, "m.yaml: the model \"tiny-1b\" may be a/Tiny-1B, b/Tiny-1B; write the whole id"));
  const Failure part = failure(file, "3B");
  CHECK(part.status == ANYATTN_NOT_FOUND);
  CHECK(holds(part.text, "there is no model \"3B\"; nearest of 3: b/Small-3B"));
  const Failure typo = failure(kOwnTable, "Llama3.1-8B");
  CHECK(holds(typo.text, "nearest of 31: meta-llama/Llama-3.1-8B"));
  CHECK(failure(kOwnTable, "").status == ANYATTN_NOT_FOUND);
}

TEST_CASE("models_tables_with_mistakes_are_refused_with_their_place") {
  const TempDir folder;
  const std::string head = "models:\n- {id: m, kind: decoder, layers: 1, hidden: 8, position: rope,\n   attention: [";
  struct Case {
    std::string text;
    std::string part;
  };
  for (const Case& c : std::vector<Case>{
           {"", "m.yaml: the file is empty; a table of models is a mapping with the keys models"},
           {"[]\n", "m.yaml:1:1: the file holds a list"},
           {"models: {}\n", "m.yaml:1:9: models: got a mapping; wanted: a list"},
           {"models:\n- {id: m, kind: decodr, layers: 1, hidden: 8, position: rope, attention: [{n: 1, kind: ssm}]}\n",
            "m.yaml:2:17: models[0].kind: got the text \"decodr\"; allowed: decoder, encoder"},
           {head + "{n: 1, kind: full, q: 4, kv: 3, head: 8}]}\n", "m.yaml:3:16: m: q is 4, no multiple of kv, which is 3"},
           {head + "{n: 1, kind: full, kv: 3, head: 8}]}\n", "m.yaml:3:16: m: a full row needs q, kv and head"},
           {head + "{n: 1, kind: sliding, q: 4, kv: 2, head: 8}]}\n", "m: a sliding row needs a window"},
           {head + "{n: 1, kind: full, q: 4, kv: 2, head: 8, window: 9}]}\n", "m: a full row has no window"},
           {head + "{n: 1, kind: mla, q: 4, kv: 4, head: 8}]}\n", "m: an mla row needs the model's mla sizes"},
           {head + "{n: 1, kind: mla, q: 4, kv: 4, head: 8}], mla: {kv_lora: 4, nope: 4, rope: 2, v: 4}}\n",
            "m: head is 8, but mla.nope + mla.rope is 6"},
           {head + "{n: 1, kind: mla, q: 4, kv: 4, head: 6, v_head: 5}], mla: {kv_lora: 4, nope: 4, rope: 2, v: 4}}\n",
            "m: v_head is 5, but mla.v is 4"},
           {head + "{n: 1, kind: full, q: 4, kv: 2, head: 8}], sparse: {kind: topk, keys: 4, layers: 2}}\n",
            "m: sparse.layers is 2, more than the 1 layers of the row"},
           {head + "{n: 1, kind: full, q: 4, kv: 2, head: 8}], sparse: {kind: topk}}\n", "m: sparse.keys is missing"},
           {head + "{n: 0, kind: full, q: 4, kv: 2, head: 8}]}\n", "models[0].attention[0].n: got the number 0"},
           {head + "{n: 1, kind: full, q: 4, kv: 2, head: 8, scale: 0.0}]}\n", "soft_cap and scale are above 0"},
           {head + "{n: 1, kind: full, q: 4, kv: 2, head: 8, windw: 1}]}\n",
            "models[0].attention[0].windw: unknown key; did you mean window?"},
           {head + "]}\n", "models[0].attention: got a list; wanted: a list of at least one element"},
           {head + "{n: 1, kind: full, q: 4, kv: 2, head: 8}]}\n- {id: M, kind: decoder, layers: 1, hidden: 8, position: rope, "
                   "attention: [{n: 1, kind: ssm}]}\n",
            "m.yaml:4:3: models[1].id: the model M is listed twice"},
       }) {
    const Failure said = failure(folder.write("m.yaml", c.text), "m");
    CAPTURE(c.text);
    CAPTURE(said.text);
    CHECK(said.status == ANYATTN_INVALID_ARGUMENT);
    CHECK(holds(said.text, c.part));
  }
}

TEST_CASE("models_null_arguments_and_old_structs_are_answered") {
  char text[300];
  anyattn_error error{text, sizeof text, 0, 0, 0};
  anyattn_model* none = nullptr;
  CHECK(anyattn_model_load(nullptr, nullptr, 0, &none, &error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(text) == "anyattn_model_load: id is null; it is needed");
  CHECK(anyattn_model_load(nullptr, "x", 0, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  anyattn_model_destroy(nullptr);
  const Model model = load("Llama-3.1-8B");
  CHECK(anyattn_model_get_info(model.get(), nullptr, &error) == ANYATTN_INVALID_ARGUMENT);
  anyattn_model_info info{};
  CHECK(anyattn_model_get_info(model.get(), &info, &error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(holds(text, "struct_size is 0"));
  info.struct_size = ANYATTN_END_OFFSET(anyattn_model_info, id);
  info.hidden_size = 77;
  CHECK(anyattn_model_get_info(model.get(), &info, &error) == ANYATTN_OK);
  CHECK(std::string(info.id) == "meta-llama/Llama-3.1-8B");
  CHECK(info.hidden_size == 77);
  anyattn_layer_kind kind{};
  kind.struct_size = ANYATTN_LAYER_KIND_SIZE;
  CHECK(anyattn_model_get_layer_kind(model.get(), 1, &kind, &error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(holds(text, "index 1; meta-llama/Llama-3.1-8B has 1 kinds of layers"));
}

TEST_CASE("models_installed_table_lists_and_loads_every_model") {
  char* json = nullptr;
  REQUIRE(anyattn_models_list(nullptr, &json, nullptr) == ANYATTN_OK);
  CHECK(holds(json, "{\"id\": \"meta-llama/Llama-3.1-8B\", \"kind\": \"decoder\", \"layers\": 32, \"dtype\": \"bfloat16\"}"));
  CHECK(holds(json, "{\"id\": \"bigscience/bloom-7b1\", \"kind\": \"decoder\", \"layers\": 30, \"dtype\": null}"));
  const std::string list = json;
  std::free(json);
  size_t count = 0;
  for (size_t at = list.find("{\"id\": \""); at != std::string::npos; at = list.find("{\"id\": \"", at + 1)) {
    const std::string id = list.substr(at + 8, list.find('"', at + 8) - at - 8);
    for (const anyattn_layer_kind& kind : kinds_of(load(id))) CHECK((kind.problem == nullptr) == (kind.unsupported != nullptr));
    ++count;
  }
  CHECK(count == 31);
}

TEST_CASE("models_of_the_shared_table_all_load_and_ours_agree_with_it") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  const std::string file = (*shared / "data/model_shapes.yaml").string();
  char* json = nullptr;
  char text[1000] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  REQUIRE_MESSAGE(anyattn_models_list(file.c_str(), &json, &error) == ANYATTN_OK, text);
  const std::string list = json;
  std::free(json);
  size_t count = 0, compared = 0;
  for (size_t at = list.find("{\"id\": \""); at != std::string::npos; at = list.find("{\"id\": \"", at + 1)) {
    const std::string id = list.substr(at + 8, list.find('"', at + 8) - at - 8);
    CAPTURE(id);
    const Model theirs = load(id, ANYATTN_DTYPE_BFLOAT16, file);
    const auto kinds = kinds_of(theirs);
    CHECK_FALSE(kinds.empty());
    ++count;
    if (failure(kOwnTable, id.c_str()).status != ANYATTN_OK) continue;
    const Model ours = load(id);
    if (std::string(info_of(ours).id) != id) continue;
    ++compared;
    CHECK(info_of(ours).num_layers == info_of(theirs).num_layers);
    CHECK(info_of(ours).max_context == info_of(theirs).max_context);
    const auto own = kinds_of(ours);
    REQUIRE(own.size() == kinds.size());
    for (size_t i = 0; i < own.size(); ++i) {
      CHECK(std::string(own[i].label) == kinds[i].label);
      CHECK(own[i].num_layers == kinds[i].num_layers);
      CHECK(own[i].softmax_scale == kinds[i].softmax_scale);
      REQUIRE((own[i].problem == nullptr) == (kinds[i].problem == nullptr));
      if (!own[i].problem) continue;
      CHECK(features(own[i]) == features(kinds[i]));
      // Everything past the two pointers' neighbours is a number: sizes, window, cap.
      CHECK(std::memcmp(&own[i].problem->attention_type, &kinds[i].problem->attention_type,
                        offsetof(anyattn_problem, kv_cache_dtype) - offsetof(anyattn_problem, attention_type)) == 0);
      CHECK(std::memcmp(&own[i].problem->kv_lora_rank, &kinds[i].problem->kv_lora_rank,
                        offsetof(anyattn_problem, logits_soft_cap) - offsetof(anyattn_problem, kv_lora_rank)) == 0);
      CHECK(own[i].problem->logits_soft_cap == kinds[i].problem->logits_soft_cap);
    }
  }
  CHECK(count == 75);
  CHECK(compared == 31);
}
