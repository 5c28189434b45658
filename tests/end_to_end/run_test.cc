// SPDX-License-Identifier: Apache-2.0
// The verb `run` as a script sees it: keys, exit codes, table beside a JSON file, one sentence for each mistake.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include <fstream>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

const std::string kModels = std::string(ANYATTN_SOURCE_DIR) + "/tests/unit/serving/models.yaml";

Result run(const std::string& config, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"run", "--config", config, "--models", kModels, "--device", "cpu"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli(arguments);
}

}  // namespace

TEST_CASE("run_has_the_keys_that_scripts_rely_on_and_checks_its_rows") {
  TempDir dir;
  const std::string config = cpu_config();
  const std::string file = dir.write("c.yaml", config);
  const Result result = run(file, {"--model", "tiny/window", "--trace", "builtin:code", "--requests", "4", "--max-prompt",
                                   "300", "--layers", "1", "--seed", "3", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const json report = result.json();
  CHECK(report.at("requests_done") == 4);
  CHECK(report.at("prefill_tokens_per_s") > 0);
  CHECK(report.at("decode_tokens_per_s") > 0);
  for (const char* share : {"p50", "p90", "p99"}) CHECK(report.at("step_ms").at(share) > 0);
  REQUIRE(report.at("backends").size() == 2);
  CHECK(report["backends"][0].at("layer_kind") == "sliding");
  CHECK(report["backends"][1].at("layer_kind") == "full");
  for (const json& kind : report["backends"]) {
    CHECK(kind.at("backend") == "CPU_ATTN");
    CHECK(kind.at("layers") == 1);
  }
  CHECK(report.at("checked_rows") >= report.at("steps").get<int>() * 2);
  CHECK(report.at("worst_error_over_bound") > 0);
  CHECK(report.at("worst_error_over_bound") <= 1);
}

TEST_CASE("run_reads_a_trace_file_and_keeps_its_table_beside_a_json_file") {
  TempDir dir;
  const std::string config = dir.write("c.yaml", cpu_config());
  const std::string trace =
      dir.write("t.jsonl",
                "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 3, \"hash_ids\": [1, 2]}\n"
                "{\"timestamp\": 900, \"input_length\": 601, \"output_length\": 2, \"hash_ids\": [1, 2]}\n"
                "{\"timestamp\": 950, \"input_length\": 1024, \"output_length\": 2, \"hash_ids\": [3, 4]}\n");
  const std::string report = dir.path() + "/report.json";
  const Result result = run(config, {"--model", "tiny/full", "--trace", trace, "--max-prompt", "700", "--token-budget", "128",
                                     "--saturate", "--json", report});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(contains(result.out, "4 x full"));
  CHECK(contains(result.out, "2 of 2 done, 1 skipped"));
  std::ifstream in(report);
  const json value = json::parse(in);
  CHECK(value.at("requests_skipped") == 1);
  CHECK(value.at("kv").at("reused_tokens") > 0);
  CHECK(value.at("checked_rows_cached_prefix") > 0);
}

TEST_CASE("run_recomputes_rows_over_caches_of_every_format") {
  TempDir dir;
  const std::string config = dir.write("c.yaml", cpu_config());
  for (const char* format :
       {"bfloat16", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"}) {
    CAPTURE(format);
    const Result result = run(config, {"--model", "tiny/full", "--trace", "builtin:chat", "--requests", "2", "--max-prompt",
                                       "120", "--layers", "1", "--dtype", "bfloat16", "--kv-cache-dtype", format, "--json"});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    const json report = result.json();
    CHECK(report["backends"][0].at("kv_cache_dtype") == format);
    CHECK(report.at("worst_error_over_bound") > 0);
    CHECK(report.at("worst_error_over_bound") <= 1);
  }
}

// A digest of the whole problem finds a lock's and a profile's entries: verbs that ask one field otherwise miss them.
TEST_CASE("run_and_warm_ask_what_lock_wrote_down_for_plain_and_mla_layers") {
  TempDir dir;
  const std::string plain = dir.write("c.yaml", cpu_config());
  const std::string locked = dir.write("locked.yaml", cpu_config("selection: {lock: lock.json}\n"));
  for (const char* model : {"tiny/full", "tiny/window", "tiny/alibi", "tiny/mla"}) {
    CAPTURE(model);
    const Result lock =
        cli({"lock", "--config", plain, "--models", kModels, "--model", model, "--device", "cpu", "-o", dir / "lock.json"});
    CAPTURE(lock.err);
    REQUIRE(lock.code == 0);
    const Result held =
        run(locked, {"--model", model, "--trace", "builtin:chat", "--requests", "1", "--max-prompt", "64", "--layers", "1"});
    CAPTURE(held.err);
    CHECK(held.code == 0);
    CHECK(cli({"warm", "--config", locked, "--models", kModels, "--model", model, "--device", "cpu"}).code == 0);
    const Result other = run(locked, {"--model", model, "--trace", "builtin:chat", "--requests", "1", "--max-prompt", "64",
                                      "--layers", "1", "--dtype", "float32"});
    CHECK(other.code != 0);
    CHECK(contains(other.err, "it has no selection for this problem"));
  }
}

TEST_CASE("warm_makes_every_kind_of_a_model_s_layers_ready_and_says_which_it_cannot") {
  TempDir dir;
  const std::string device =
      dir.write("device.yaml", "version: 1\nplugins: {search: [" + std::string(ANYATTN_TEST_DIR) + "/pretend]}\n");
  const Result ready =
      cli({"warm", "--model", "gemma-3-1b-it,Llama-3.1-8B", "--device", "cuda:0", "--config", device, "--json"});
  CHECK(ready.code == 0);
  const json layers = ready.json()["layers"];
  REQUIRE(layers.size() == 3);  // sliding and full, full
  for (const json& row : layers) {
    CHECK(row["backend"] == "QUEUED_ATTN");
    CHECK(row["graph_level"] == "always");
    CHECK(row["seconds"] > 0);
    CHECK(row["error"].is_null());
  }

  const Result refused =
      cli({"warm", "--model", "DeepSeek-V3", "--device", "cuda:0", "--backend", "QUEUED_ATTN", "--config", device, "--json"});
  CHECK(refused.code == 1);
  CHECK(refused.json()["ready"] == false);
  CHECK(contains(refused.json()["layers"][0]["error"], "QUEUED_ATTN"));

  const Result absent =
      cli({"warm", "--model", "Llama-3.1-8B", "--device", "cuda:0", "--config", dir.write("cpu.yaml", cpu_config())});
  CHECK(absent.code == 1);
  CHECK(contains(absent.err, "cuda"));
  CHECK(std::count(absent.err.begin(), absent.err.end(), '\n') == 1);
  const Result unheard = cli({"warm", "--model", "Llama-3.1-8B", "--device", "sm_90"});
  CHECK(unheard.code == 2);
  CHECK(contains(unheard.err, "allowed: auto, cpu, cuda:N"));
}

TEST_CASE("warm_for_an_architecture_and_a_device_at_once_is_a_mistake") {
  const Result both = cli({"warm", "--model", "Llama-3.1-8B", "--arch", "sm_90", "--device", "cuda:0"});
  CHECK(both.code == 2);
  CHECK(contains(both.err, "exclude each other"));
  CHECK(cli({"warm", "--model", "Llama-3.1-8B", "--arch", "sm_75"}).code == 2);
}

#ifdef ANYATTN_NVRTC_DIR
TEST_CASE("warm_for_an_absent_architecture_fills_a_cache_once") {
  TempDir dir;
  const std::string kernels = dir.path() + "/kernels of ours";
  // A profile of another device and a folder with a blank: the user's other values keep their meaning.
  const std::string config = dir.write(
      "c.yaml", "version: 1\nplugins:\n  search: [" + std::string(ANYATTN_TEST_DIR) +
                    "/../plugins/portable_cuda, bad]\n  entries:\n    - {id: org.anyattn.portable.cuda, options: {cache: \"" +
                    kernels + "\", unproven: refuse}}\nprobe: {cache: verdicts}\n");
  const std::string bad = dir.write("bad/anyattn_bad.so", "no plugin");
  const std::vector<std::string> command{"warm", "--model", "Llama-3.1-8B", "--arch", "sm_90", "--config", config, "--json"};
  const Result first_time = cli(command, {{"LD_LIBRARY_PATH", ANYATTN_NVRTC_DIR}});
  const json filled = first_time.json();
  CAPTURE(filled.dump());
  // The user's configuration is opened once, and once with the device that is not here.
  int opened = 0;
  for (size_t at = 0; (at = first_time.err.find(bad + " failed at inspect", at)) != std::string::npos; ++at) ++opened;
  CHECK(opened == 2);
  CHECK(filled["ready"] == true);
  CHECK(filled["device"] == "sm_90");
  CHECK(filled["layers"][0]["backend"] == "PORTABLE_ATTN");
  CHECK(std::filesystem::exists(dir.path() + "/verdicts"));
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(kernels), std::filesystem::directory_iterator{});
  };
  const auto first = files();
  CHECK(first >= 4);

  // Again: nothing is compiled.
  CHECK(cli(command, {{"LD_LIBRARY_PATH", ANYATTN_NVRTC_DIR}}).json()["ready"] == true);
  CHECK(files() == first);

  // Beside the plugin, where nothing may be compiled: the problem that was built and no other.
  const std::string place = dir.path() + "/portable";
  std::filesystem::create_directory(place);
  std::filesystem::copy(std::string(ANYATTN_PLUGIN_DIR) + "/portable_cuda/anyattn_portable_cuda.so", place);
  std::filesystem::copy(std::string(ANYATTN_PLUGIN_DIR) + "/portable_cuda/anyattn_portable_cuda.yaml", place);
  std::filesystem::rename(kernels, place + "/prebuilt");
  const std::string bare = dir.write("bare.yaml", "version: 1\nplugins:\n  search: [" + place +
                                                      "]\n  entries:\n    - {id: org.anyattn.portable.cuda, options: {cache: "
                                                      "\"off\", compiler: \"off\"}}\nlog: {level: error}\n");
  const auto warm = [&](const char* model) {
    return cli({"warm", "--model", model, "--arch", "sm_90", "--config", bare, "--json"}).json();
  };
  CHECK(warm("Llama-3.1-8B")["ready"] == true);
  const json other = warm("Qwen3-0.6B");
  CHECK(other["ready"] == false);
  CHECK(contains(other["layers"][0]["error"],
                 "compiler_version off, allowed: a run-time compiler, or machine code of just this"));

  // A plugin that was turned away is said to be that, not to be absent.
  dir.write("portable/anyattn_portable_cuda.so", "no plugin");
  const Result cut = cli({"warm", "--model", "Llama-3.1-8B", "--arch", "sm_90", "--config", bare});
  CHECK(cut.code == 1);
  CHECK(contains(cut.err, "org.anyattn.portable.cuda, which compiles for it, failed at inspect: "));
}
#endif

TEST_CASE("run_says_each_mistake_in_one_sentence_with_its_exit_code") {
  TempDir dir;
  const std::string config = dir.write("c.yaml", cpu_config());
  const std::string broken = dir.write("b.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,x\n");
  const std::string text = dir.write("t.csv", "hello\n");
  struct MistakeCase {
    std::vector<std::string> flags;
    int code;
    const char* part;
  };
  const MistakeCase cases[] = {
      {{"--model", "tiny/full", "--trace", broken}, 2, "b.csv:2: "},
      {{"--model", "tiny/full", "--trace", text}, 2, "t.csv:1: 'hello' begins neither"},
      {{"--model", "tiny/full", "--trace", dir.path() + "/none.csv"}, 2, "No such file"},
      {{"--model", "tiny/full", "--trace", "builtin:poem"}, 2, "allowed: builtin:chat, builtin:code"},
      {{"--model", "tiny/none", "--trace", "builtin:chat"}, 2, "tiny/none"},
      {{"--model", "tiny/full", "--trace", "builtin:chat", "--max-prompt", "1"}, 2, "--max-prompt 1 leaves no request"},
      {{"--model", "tiny/full", "--trace", "builtin:chat", "--token-budget", "8"},
       2,
       "--token-budget 8: allowed: at least --max-reqs 64"},
      {{"--model", "tiny/full", "--trace", "builtin:chat", "--kv-cache-dtype", "nvfp4"}, 1, "nvfp4"},
      {{"--model", "tiny/full", "--trace", "builtin:chat", "--requests", "2", "--blocks", "1"},
       1,
       "pool of 1 pages; raise --blocks"},
  };
  for (const MistakeCase& c : cases) {
    CAPTURE(c.part);
    const Result result = run(config, c.flags);
    CAPTURE(result.err);
    CHECK(result.code == c.code);
    CHECK(contains(result.err, c.part));
    CHECK(result.out.empty());
  }
}
