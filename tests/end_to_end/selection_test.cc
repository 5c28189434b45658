// SPDX-License-Identifier: Apache-2.0
// What an operator sees of selection: list, explain and config, their JSON keys, musts and their origins, errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

// A problem every test may ask CPU_ATTN about.
std::vector<std::string> explain(const std::string& config, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"explain", "--config", config, "--head-size", "64", "--device", "cpu", "--json"};
  arguments.insert(arguments.end() - 1, more.begin(), more.end());
  return arguments;
}

json only_layer(const Result& result) {
  const json answer = result.json();
  REQUIRE(answer["layers"].size() == 1);
  return answer["layers"][0];
}

std::string chosen(const json& layer) { return layer["chosen"].is_null() ? "" : layer["chosen"].get<std::string>(); }

void has_keys(const json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    CAPTURE(key);
    CHECK(object.contains(key));
  }
}

std::string value_origin(const json& config, const std::string& key) {
  for (const json& value : config["values"]) {
    if (value["key"] == key) return value["origin"];
  }
  return "no such key";
}

}  // namespace

TEST_CASE("list_has_the_keys_that_scripts_rely_on") {
  TempDir dir;
  dir.write("anyattn_broken.so", "not a library");
  const std::string config = dir.write(
      "config.yaml", "version: 1\nplugins:\n  search: [" + std::string(ANYATTN_PLUGIN_DIR) + "/cpu, " + dir.path() + "]\n");
  const Result result = cli({"list", "--config", config, "--json"});
  CHECK(result.code == 0);
  const json list = result.json();
  has_keys(list, {"generation", "backends", "skipped", "plugins"});
  REQUIRE(list["backends"].size() == 2);
  for (const json& backend : list["backends"]) {
    has_keys(backend, {"name", "device", "plugin", "path", "state", "overrides", "overridden_by", "beneath"});
    CHECK(backend["state"] == "listed");
    CHECK(backend["device"] == "cpu");
    CHECK(backend["plugin"] == "org.anyattn.cpu");
  }
  REQUIRE(list["skipped"].size() == 1);
  has_keys(list["skipped"][0], {"path", "stage", "reason", "remedy"});
  CHECK(contains(list["skipped"][0]["path"], "anyattn_broken.so"));
  CHECK(list["skipped"][0]["stage"] == "inspect");
}

TEST_CASE("explain_has_the_keys_that_scripts_rely_on") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result result = cli(explain(config));
  CHECK(result.code == 0);
  const json layer = only_layer(result);
  has_keys(layer, {"kind", "problem", "chosen", "candidates", "origin", "device"});
  CHECK(layer["chosen"] == "CPU_ATTN");
  CHECK(layer["problem"]["head_size"] == 64);
  CHECK(layer["problem"]["num_q_heads"] == 32);
  // The two of the plugin, and two of selection.order that nothing here offers.
  const std::map<std::string, std::pair<std::string, std::string>> expected = {{"CPU_ATTN", {"supports", "chosen"}},
                                                                               {"CPU_MLA", {"supports", "refused"}},
                                                                               {"PORTABLE_ATTN", {"discover", "failed"}},
                                                                               {"PORTABLE_MLA", {"discover", "failed"}}};
  REQUIRE(layer["candidates"].size() == expected.size());
  for (const json& candidate : layer["candidates"]) {
    has_keys(candidate, {"backend", "plugin", "stage", "verdict", "reasons"});
    const auto& [stage, verdict] = expected.at(candidate["backend"]);
    CHECK(candidate["stage"] == stage);
    CHECK(candidate["verdict"] == verdict);
    CHECK(candidate["reasons"].empty() == (verdict == "chosen"));
    if (verdict == "chosen") CHECK(!candidate["report"]["kernels"].get<std::string>().empty());
    for (const json& reason : candidate["reasons"]) has_keys(reason, {"id", "field", "wanted", "allowed", "hint"});
  }
}

TEST_CASE("explain_shows_every_kind_of_layer_of_a_model") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const struct {
    const char* model;
    std::vector<std::pair<std::string, std::string>> layers;  // kind, chosen
  } models[] = {
      {"Llama-3.1-8B", {{"full", "CPU_ATTN"}}},
      {"gemma-3-27b-it", {{"sliding", "CPU_ATTN"}, {"full", "CPU_ATTN"}}},
      {"gpt-oss-20b", {{"sliding", "CPU_ATTN"}, {"full", "CPU_ATTN"}}},
      {"DeepSeek-V3", {{"mla", "CPU_MLA"}}},
  };
  for (const auto& model : models) {
    CAPTURE(model.model);
    const Result result = cli({"explain", "--config", config, "--model", model.model, "--device", "cpu", "--json"});
    CHECK(result.code == 0);
    const json answer = result.json();
    REQUIRE(answer["layers"].size() == model.layers.size());
    for (size_t i = 0; i < model.layers.size(); ++i) {
      CHECK(answer["layers"][i]["kind"] == model.layers[i].first);
      CHECK(chosen(answer["layers"][i]) == model.layers[i].second);
    }
  }
  const Result table = cli({"explain", "--config", config, "--model", "gpt-oss-20b", "--device", "cpu"});
  for (const char* text :
       {"sliding", "window_left 127", "sinks", "CPU_ATTN", "CPU_MLA", "refused", "chosen", "layers: 24 by CPU_ATTN"})
    CHECK(contains(table.out, text));
}

TEST_CASE("explain_refuses_layers_without_a_problem_by_name") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result result =
      cli({"explain", "--config", config, "--model", "Qwen3-Next-80B-A3B", "--device", "cpu", "--models",
           dir.write("models.yaml",
                     "models:\n- {id: Qwen/Qwen3-Next-80B-A3B, kind: hybrid, layers: 48, hidden: 2048, context: 32768, dtype: "
                     "bfloat16, position: rope,\n   attention: [{n: 12, kind: full, q: 16, kv: 2, head: 256}, {n: 36, kind: "
                     "linear, q: 16, kv: 32, head: 128}]}\n"),
           "--json"});
  CHECK(result.code == 1);
  const json layers = result.json()["layers"];
  REQUIRE(layers.size() == 2);
  CHECK(chosen(layers[0]) == "CPU_ATTN");
  CHECK(chosen(layers[1]) == "");
  CHECK(contains(layers[1]["unsupported"], "linear"));
  CHECK(result.json()["backends"] ==
        json::parse(R"([{"backend": "CPU_ATTN", "layers": 12}, {"backend": null, "layers": 36}])"));
}

TEST_CASE("musts_are_taken_nearest_first_and_say_where_they_come_from") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config("selection:\n  backend: CPU_MLA\n"));
  const std::string plain = dir.write("plain.yaml", cpu_config());

  const json from_file = only_layer(cli(explain(config)));
  CHECK(from_file["chosen"].is_null());  // a must is never replaced
  CHECK(contains(from_file["error"], "CPU_MLA"));

  const json from_environment = only_layer(cli(explain(config), {{"ANYATTN_BACKEND", "CPU_ATTN"}}));
  CHECK(chosen(from_environment) == "CPU_ATTN");
  CHECK(contains(from_environment["origin"], "ANYATTN_BACKEND"));

  const json from_flag = only_layer(cli(explain(config, {"--backend", "CPU_ATTN"}), {{"ANYATTN_BACKEND", "CPU_MLA"}}));
  CHECK(chosen(from_flag) == "CPU_ATTN");
  CHECK(contains(from_flag["origin"], "flag"));

  const json by_order = only_layer(cli(explain(plain)));
  CHECK(chosen(by_order) == "CPU_ATTN");
  CHECK(contains(by_order["origin"], "order"));

  // The file itself: flag over environment.
  CHECK(chosen(only_layer(cli(explain(plain), {{"ANYATTN_CONFIG", config}}))) == "CPU_ATTN");
}

TEST_CASE("rules_choose_by_problem_field") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config("selection:\n  rules:\n    - {when: {head_size: 64}, backend: "
                                                                 "CPU_ATTN}\n    - {when: {device: cpu}, backend: CPU_MLA}\n"));
  const json small = only_layer(cli(explain(config)));
  CHECK(chosen(small) == "CPU_ATTN");
  CHECK(contains(small["origin"], "config.yaml:"));
  const Result large = cli({"explain", "--config", config, "--head-size", "128", "--device", "cpu", "--json"});
  CHECK(large.code == 1);
  CHECK(only_layer(large)["chosen"].is_null());
}

TEST_CASE("four_kinds_of_wrong_backend_give_four_different_errors") {
  TempDir dir;
  dir.write("anyattn_broken.so", "not a library");
  dir.write("anyattn_broken.yaml",
            "sidecar: 1\nid: org.example.broken\nvendor: \"Example\"\nversion: \"1\"\nlicense: \"Apache-2.0\"\n"
            "abi: {min: \"0.1\", max: \"0.1\"}\nbackends:\n  - {name: BROKEN_ATTN, device: cpu}\nproviders: []\nneeds_cpu: []\n"
            "architectures: []\n");
  const std::string config = dir.write(
      "config.yaml", "version: 1\nplugins:\n  search: [" + std::string(ANYATTN_PLUGIN_DIR) + "/cpu, " + dir.path() + "]\n");
  const struct {
    const char* backend;
    std::vector<const char*> texts;
  } wrong[] = {
      {"INVALID", {"INVALID", "CPU_ATTN"}},                   // unknown, with the list
      {"CPU_ATN", {"CPU_ATN", "CPU_ATTN"}},                   // unknown, with the closest
      {"PORTABLE_ATTN", {"PORTABLE_ATTN"}},                   // known, not here
      {"BROKEN_ATTN", {"BROKEN_ATTN", "anyattn_broken.so"}},  // its plugin failed, with the cause
      {"CPU_MLA", {"CPU_MLA", "mla"}},                        // unfit, with the reason
  };
  std::vector<std::string> texts;
  for (const auto& row : wrong) {
    CAPTURE(row.backend);
    const Result result = cli(explain(config, {"--backend", row.backend}));
    CHECK(result.code == 1);
    const json layer = only_layer(result);
    CHECK(layer["chosen"].is_null());
    const std::string error = layer["error"];
    for (const char* text : row.texts) CHECK(contains(error, text));
    for (const std::string& other : texts) CHECK(error != other);
    texts.push_back(error);
  }
}

TEST_CASE("environment_mistakes_are_said") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result unknown = cli(explain(config), {{"ANYATTN_BACKEND", "INVALID"}});
  CHECK(unknown.code == 1);
  CHECK(contains(only_layer(unknown)["error"], "ANYATTN_BACKEND"));

  const Result near_miss = cli(explain(config), {{"ANYATTN_BACKENDS", "CPU_ATTN"}});
  CHECK(near_miss.code == 0);
  CHECK(contains(near_miss.err, "ANYATTN_BACKENDS"));
  CHECK(contains(near_miss.err, "ANYATTN_BACKEND"));
}

TEST_CASE("config_shows_each_value_with_its_origin") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config("log:\n  level: warning\n"));
  const json shown = cli({"config", "--config", config, "--json"}, {{"ANYATTN_BACKEND", "CPU_ATTN"}}).json();
  for (const json& value : shown["values"]) has_keys(value, {"key", "value", "origin"});
  CHECK(contains(value_origin(shown, "log.level"), "config.yaml:5"));
  CHECK(value_origin(shown, "probe.timeout_ms") == "default");
  CHECK(contains(value_origin(shown, "selection.backend"), "ANYATTN_BACKEND"));
  CHECK(contains(cli({"config", "--config", config}).out, "probe.timeout_ms"));
}

TEST_CASE("a_wrong_configuration_exits_2_with_file_and_line") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config("selektion: {}\n"));
  const Result result = cli({"list", "--config", config});
  CHECK(result.code == 2);
  CHECK(contains(result.err, "config.yaml:4"));
  CHECK(contains(result.err, "selection"));
}

TEST_CASE("odd_block_sizes_are_taken_or_refused_with_reasons") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  for (const int size : {1, 8, 15, 16, 17, 24, 32}) {
    CAPTURE(size);
    const Result result = cli({"explain", "--config", config, "--head-size", "128", "--dtype", "bfloat16", "--block-size",
                               std::to_string(size), "--device", "cpu", "--json"});
    CHECK(result.code == 0);
    const json layer = only_layer(result);
    CHECK(chosen(layer) == "CPU_ATTN");
    CHECK(layer["problem"]["block_size"] == size);
    CHECK(layer["block_size_origin"] == "user");
  }
  const json free = only_layer(cli(explain(config)));
  CHECK(free["block_size_origin"] == "backend");
  CHECK(free["problem"]["block_size"] > 0);
}

TEST_CASE("cuda_without_a_driver_fails_by_name_and_auto_falls_to_cpu") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result cuda = cli({"explain", "--config", config, "--head-size", "64", "--device", "cuda"});
  CHECK(cuda.code == 1);
  CHECK(contains(cuda.err, "cuda"));
  const json automatic = only_layer(cli({"explain", "--config", config, "--head-size", "64", "--json"}));
  CHECK(contains(automatic["device"], "cpu"));
}

TEST_CASE("every_problem_flag_reaches_the_problem") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const struct {
    std::vector<std::string> flags;
    const char* feature;
    const char* field;  // null: the feature has no parameter here
    json value;
  } rows[] = {
      {{"--non-causal"}, "non_causal", nullptr, {}},
      {{"--per-request-causal"}, "per_request_causal", nullptr, {}},
      {{"--window-left", "127"}, "window", "window_left", 127},
      {{"--logits-soft-cap", "50"}, "soft_cap", "logits_soft_cap", 50},
      {{"--alibi"}, "alibi", nullptr, {}},
      {{"--alibi-sqrt"}, "alibi_sqrt", nullptr, {}},
      {{"--alibi-symmetric", "--non-causal"}, "alibi_symmetric", nullptr, {}},
      {{"--sinks"}, "sinks", nullptr, {}},
      {{"--mm-prefix"}, "mm_prefix", nullptr, {}},
      {{"--top-k", "64"}, "sparse_topk", "top_k", 64},
      {{"--chunk-size", "8192"}, "chunked_local", "chunk_size", 8192},
      {{"--cp-decode", "--cp-world-size", "4", "--cp-rank", "1"}, "cp_decode", "cp_rank", 1},
      {{"--lse"}, "lse", nullptr, {}},
      {{"--batch-invariant"}, "batch_invariant", nullptr, {}},
      {{"--quantised-query"}, "quantised_query", "q_dtype", "float8_e4m3fn"},
      {{"--out-scale"}, "out_scale", "out_dtype", "float8_e4m3fn"},
      {{"--out-block-size", "16"}, "out_block_scales", "out_block_size", 16},
      {{"--cp-prefill", "--cp-world-size", "4"}, "cp_prefill", "cp_interleave", 1},
      {{"--kv-scales"}, "kv_scales", nullptr, {}},
      {{"--kv-scales-per-head"}, "kv_scales_per_head", nullptr, {}},
      {{"--kv-transfer"}, "kv_transfer", nullptr, {}},
      {{"--graph-level", "uniform_batch"}, "graph", "graph_level", "uniform_batch"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.feature);
    const Result result = cli(explain(config, row.flags));
    CHECK((result.code == 0 || result.code == 1));
    const json layer = only_layer(result);
    const json& features = layer["problem"]["features"];
    CHECK(std::find(features.begin(), features.end(), row.feature) != features.end());
    if (row.field) CHECK(layer["problem"][row.field] == row.value);
  }
  const json mla = only_layer(cli({"explain", "--config", config, "--kv-lora-rank", "512", "--device", "cpu", "--json"}));
  CHECK(mla["problem"]["head_size"] == 576);
  CHECK(chosen(mla) == "CPU_MLA");
}

TEST_CASE("doctor_sets_the_code_of_plugins_against_the_devices_found") {
  TempDir dir;
  // A device of architecture sm_75; a file with machine code for sm_80 and PTX of 8.6, which are newer; one without any.
  const std::string folder = std::string(ANYATTN_TEST_DIR);
  const Result here = cli({"doctor", "--config",
                           dir.write("pretend.yaml", "version: 1\nplugins:\n  search: [" + folder + "/pretend, " + folder +
                                                         "/fake_plugins/device_code]\n")});
  CAPTURE(here.out);
  CHECK(contains(here.out, "pretended device, sm_75, 2048 MiB, driver 13.0, runtime 13.0, no run-time compiler"));
  CHECK(contains(here.out, "code for compute_86, sm_80"));
  CHECK(contains(here.out, "org.anyattn.fake.device_code holds no code for sm_75"));
  CHECK_FALSE(contains(here.out, "holds no code for x86"));
  CHECK(contains(here.out, "no device code in the file: no run-time compiler that suits cuda:0 is here"));
  CHECK(contains(here.out, "Intel GPUs are not supported"));
}

TEST_CASE("tools_show_the_library_s_lines_only_when_asked") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const std::vector<std::string> run{"run",      "--model", "Llama-3.1-8B", "--trace", "builtin:chat", "--requests", "1",
                                     "--layers", "1",       "--max-prompt", "64",      "--config",     config};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return cli(more);
  };
  CHECK_FALSE(contains(with({}).err, "selection:"));
  CHECK(contains(with({"--log-level", "info"}).err, "selection:"));
  const Result wrong = with({"--log-level", "loud"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "--log-level"));
}

TEST_CASE("doctor_names_what_is_in_the_way") {
  TempDir dir;
  const Result good = cli({"doctor", "--config", dir.write("good.yaml", cpu_config()), "--json"});
  CHECK(good.code == 0);
  CHECK(good.json()["healthy"] == true);
  has_keys(good.json()["findings"][0], {"subject", "health", "text", "remedy"});

  dir.write("anyattn_broken.so", "not a library");
  const std::string config = dir.write("bad.yaml", "version: 1\nplugins:\n  search: [" + dir.path() + "]\n");
  const Result bad = cli({"doctor", "--config", config});
  CHECK(bad.code == 1);
  CHECK(contains(bad.out, "anyattn_broken.so"));
  CHECK(contains(bad.out, "problem"));
}
