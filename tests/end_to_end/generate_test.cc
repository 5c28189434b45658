// SPDX-License-Identifier: Apache-2.0
// generate on the real small model: short, with the backend's name asserted.
#include <doctest/doctest.h>

#include "end_to_end/command.h"
#include "shared_dir.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

std::vector<std::string> generate(const std::filesystem::path& shared, const std::string& config,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"generate",
                                        "--config",
                                        config,
                                        "--checkpoint",
                                        shared / "data/stories260K.bin",
                                        "--tokenizer",
                                        shared / "data/tok512.bin",
                                        "--device",
                                        "cpu",
                                        "--json"};
  arguments.insert(arguments.end() - 1, more.begin(), more.end());
  return arguments;
}

json expected(const std::filesystem::path& shared) { return json::parse(read_file(shared / "data/stories260K.expected.json")); }

}  // namespace

TEST_CASE("generate_gives_the_reference_text_with_cpu_attn") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result result = cli(generate(*shared, config));
  CHECK(result.code == 0);
  const json said = result.json();
  CHECK(said["backend"] == "CPU_ATTN");
  CHECK(said["plugin"] == "org.anyattn.cpu");
  CHECK(said["token_ids"] == expected(*shared)["token_ids"]);
  CHECK(said["text"] == expected(*shared)["text"]);
}

TEST_CASE("generate_gives_the_same_ids_with_any_block_size") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  for (const int size : {1, 8, 15, 16, 17, 24, 32}) {
    CAPTURE(size);
    const json said = cli(generate(*shared, config, {"--block-size", std::to_string(size), "--tokens", "40"})).json();
    CHECK(said["block_size"] == size);
    json first = expected(*shared)["token_ids"];
    first.erase(first.begin() + 40, first.end());
    CHECK(said["token_ids"] == first);
  }
}

TEST_CASE("generate_keeps_text_and_figures_on_standard_output_without_json") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  TempDir dir;
  std::vector<std::string> arguments = generate(*shared, dir.write("config.yaml", cpu_config()), {"--tokens", "12"});
  arguments.pop_back();
  const Result result = cli(arguments);
  CHECK(result.code == 0);
  CHECK(result.out.rfind("Once upon a time", 0) == 0);
  CHECK(contains(result.out, "12 tokens by CPU_ATTN of org.anyattn.cpu"));
}

TEST_CASE("generate_tells_a_story_over_caches_of_one_byte") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  for (const char* format : {"int8_per_token_head", "fp8_per_token_head", "fp8_e4m3"}) {
    CAPTURE(format);
    const Result result = cli(generate(*shared, config, {"--kv-cache-dtype", format}));
    CHECK(result.code == 0);
    const json report = result.json();
    CHECK(report.at("kv_cache_dtype") == format);
    CHECK(report.at("text").get<std::string>().rfind("Once upon a time", 0) == 0);
  }
}

TEST_CASE("generate_refuses_what_it_cannot_do") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result long_text = cli(generate(*shared, config, {"--tokens", "513"}));
  CHECK(long_text.code == 2);
  CHECK(contains(long_text.err, "512 positions"));
  const Result must = cli(generate(*shared, config, {"--backend", "CPU_MLA"}));
  CHECK(must.code == 1);
  CHECK(contains(must.err, "CPU_MLA"));
  const Result format = cli(generate(*shared, config, {"--kv-cache-dtype", "int4_per_token_head"}));
  CHECK(format.code == 1);
  CHECK(contains(format.err, "head_size 8 with int4_per_token_head"));
}
