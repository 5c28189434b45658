// SPDX-License-Identifier: Apache-2.0
// check on a right backend, a wrong one, and on what it cannot test. Single cases: the whole grid has tests of its own.
#include <doctest/doctest.h>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

// Three lengths, head 128, in the block size under test.
std::string three_lengths(int block_size) {
  return "paged bfloat16 q=8 kv=2 d=128 lens=1/40,3/17,20/20 bs=" + std::to_string(block_size);
}

const std::string kNoop = std::string(ANYATTN_BINARY_DIR) + "/lib/anyattn/bench/anyattn_noop.so";

}  // namespace

TEST_CASE("check_passes_cpu_attn_at_every_odd_block_size") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  for (const int size : {1, 8, 15, 16, 17, 24, 32}) {
    CAPTURE(size);
    const Result result = cli({"check", "CPU_ATTN", "--config", config, "--case", three_lengths(size), "--json"});
    CHECK(result.code == 0);
    const json report = result.json();
    CHECK(report["backends"][0]["backend"] == "CPU_ATTN");
  }
}

TEST_CASE("check_fails_a_backend_that_computes_nothing") {
  const std::string text = "paged float32 q=4 kv=2 d=64 lens=1/17";
  const Result result = cli({"check", kNoop, "--case", text});
  CHECK(result.code == 1);
  CHECK(contains(result.out, "NOOP_ATTN"));
  CHECK(contains(result.out, "1 failed"));
  CHECK(contains(result.out, "--case \""));  // can be pasted back
}

TEST_CASE("check_loads_another_plugin_before_and_behind_the_checked_one") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const std::string text = three_lengths(16) + " lse=base2";
  const Result right = cli({"check", "CPU_ATTN", "--config", config, "--case", text, "--beside", kNoop});
  CHECK(right.code == 0);
  CHECK(contains(right.out, "beside " + kNoop + ", opened before it and behind it: right"));
  CHECK(contains(right.out, "log-sum-exp, measured over the natural one: natural 1."));
  CHECK(contains(right.out, "base 2 1.44"));
  const Result wrong = cli({"check", kNoop, "--case", text, "--beside", kNoop});
  CHECK(wrong.code == 1);
  CHECK(contains(wrong.out, "NOT RIGHT"));
}

TEST_CASE("check_names_a_backend_or_file_that_is_not_there") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result near = cli({"check", "CPU_ATN", "--config", config});
  CHECK(near.code == 2);
  CHECK(contains(near.err, "did you mean 'CPU_ATTN'?"));
  const Result absent = cli({"check", "/nonexistent/plugin.so"});
  CHECK(absent.code == 2);
  CHECK(contains(absent.err, "/nonexistent/plugin.so"));
  const Result no_plugin = cli({"check", dir.write("notes.so", "text")});
  CHECK(no_plugin.code == 1);
  CHECK(contains(no_plugin.err, "notes.so"));
}

TEST_CASE("check_takes_the_device_provider_from_the_configuration") {
  if (std::filesystem::exists("/dev/nvidiactl")) {
    MESSAGE("SKIPPED: this machine has an NVIDIA driver");
    return;
  }
  const std::string plugins = std::string(ANYATTN_TEST_DIR) + "/../plugins";
  if (!std::filesystem::exists(plugins + "/device_cuda/anyattn_device_cuda.so")) {
    MESSAGE("SKIPPED: built without CUDA");
    return;
  }
  TempDir dir;
  const std::string config =
      dir.write("c.yaml", "version: 1\nplugins: {search: [" + plugins + "/portable_cuda, " + plugins + "/device_cuda]}\n");
  const Result result = cli({"check", "PORTABLE_ATTN", "--device", "cuda:0", "--config", config});
  CHECK(result.code == 1);
  CHECK(contains(result.err, "no NVIDIA driver on this machine"));
}

TEST_CASE("check_refuses_what_the_kit_has_not") {
  TempDir dir;
  const std::string cpu_alone = dir.write("config.yaml", cpu_config());
  const struct {
    std::vector<std::string> flags;
    int code;
    const char* text;
  } rows[] = {
      {{"--case", "paged float99 q=4"}, 2, "float99"},
      {{"--device", "cuda:0", "--config", cpu_alone}, 1, "cuda:0"},
      {{"--provider", "/nonexistent.so"}, 2, "--provider"},
      {{"--beside", "/nonexistent.so"}, 2, "--beside /nonexistent.so"},
      {{"--seed", "seven"}, 2, "--seed"},
      {{"--kv-cache-dtype", "nvfp4"}, 2, "nvfp4"},
      {{"--backend", "CPU_ATTN"}, 2, "unknown option '--backend'"},
  };
  for (const auto& row : rows) {
    std::vector<std::string> arguments = {"check", kNoop};
    arguments.insert(arguments.end(), row.flags.begin(), row.flags.end());
    const Result result = cli(arguments);
    CHECK(result.code == row.code);
    CHECK(contains(result.err, row.text));
  }
}
