// SPDX-License-Identifier: Apache-2.0
// What layers of models get on GPUs that are not here: the backend that explain names first, and which of its kernels would run.
#include <doctest/doctest.h>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

// explain of a model on a device of this architecture.
json explain(const TempDir& dir, const std::string& architecture, const std::string& model) {
  const std::string folder = ANYATTN_PLUGIN_DIR;
  const std::string config =
      dir.write("config.yaml", "version: 1\nplugins:\n  search: [" + folder + "/flash_cuda, " + folder +
                                   "/portable_cuda]\n  entries:\n  - {id: org.anyattn.device.absent, file: " ANYATTN_ABSENT_FILE
                                   ", options: {architecture: " +
                                   architecture + "}}\n");
  const Result result = cli({"explain", "--config", config, "--model", model, "--device", "cuda:0", "--json"});
  INFO(result.out, result.err);
  return result.json()["layers"];
}

std::string kernels_of(const json& layer) {
  for (const json& candidate : layer["candidates"]) {
    if (candidate["verdict"] == "chosen") return candidate["report"]["kernels"];
  }
  return "none is chosen";
}

constexpr const char* kAmpere =
    "; sm90_decode needs sm_90; sm90_prefill needs sm_90; no cascade: its gain is measured on sm_90 alone";

}  // namespace

TEST_CASE("explain_names_flash_attn_first_on_gpus_and_says_which_kernels_run") {
  const TempDir dir;
  using Layers = std::vector<std::pair<std::string, std::string>>;  // kernels on sm_90, on sm_80 before kAmpere
  const std::pair<std::string, std::string> gpt_oss{
      "sm90_decode for queries up to 4, sm90_prefill for longer ones; cascade from 85 requests that share 2048 tokens",
      "sm80_decode for queries up to 2, sm80_prefill for longer ones"};
  const struct {
    const char* model;
    Layers layers;
  } models[] = {
      {"Llama-3.1-8B",
       {{"sm90_decode for queries up to 8, sm90_prefill for longer ones; cascade from 30 requests that share 2048 tokens",
         "sm80_decode for queries up to 4, sm80_prefill for longer ones"}}},
      {"falcon-7b",
       {{"sm80_decode for queries up to 1, sm90_prefill for longer ones; sm90_decode needs query heads a kv head up to 16, or "
         "in equal parts of 8 to 16; cascade from 365 requests that share 4096 tokens",
         "sm80_decode for queries up to 1, sm80_prefill for longer ones"}}},
      {"gpt-oss-20b", {gpt_oss, gpt_oss}},
  };
  for (const auto& model : models) {
    for (const std::string architecture : {"sm_80", "sm_90"}) {
      CAPTURE(model.model);
      CAPTURE(architecture);
      const json layers = explain(dir, architecture, model.model);
      REQUIRE(layers.size() == model.layers.size());
      for (size_t i = 0; i < layers.size(); ++i) {
        CHECK(layers[i]["candidates"][0]["backend"] == "FLASH_ATTN");
        CHECK(layers[i]["chosen"] == "FLASH_ATTN");
        const auto& [hopper, ampere] = model.layers[i];
        CHECK(kernels_of(layers[i]) == (architecture == "sm_90" ? hopper : ampere + kAmpere));
      }
    }
  }
}

TEST_CASE("explain_says_what_keeps_flash_attn_from_a_layer") {
  const TempDir dir;
  for (const json& layer : explain(dir, "sm_90", "gemma-2-9b")) {  // of float32
    const json& flash = layer["candidates"][0];
    CHECK(flash["backend"] == "FLASH_ATTN");
    CHECK(flash["verdict"] == "refused");
    REQUIRE(flash["reasons"].size() == 1);
    CHECK(flash["reasons"][0]["field"] == "q_dtype");
    CHECK(flash["reasons"][0]["wanted"] == "float32");
    CHECK(flash["reasons"][0]["allowed"] == "float16, bfloat16");
  }
}
