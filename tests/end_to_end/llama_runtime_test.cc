// SPDX-License-Identifier: Apache-2.0
// The small Llama over the runtime, fed the reference's tokens: logits in every dtype, one by one and in chunks.
#include <doctest/doctest.h>

#include <cmath>

#include "common/runtime.h"
#include "end_to_end/command.h"
#include "llama/paged_attention.h"
#include "llama/tokenizer.h"
#include "shared_dir.h"
#include "temp_dir.h"

using namespace anyattn::tools;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;

namespace {

constexpr int kFed = 96;

struct Fixture {
  explicit Fixture(const std::filesystem::path& shared)
      : expected(nlohmann::json::parse(read_file(shared / "data/stories260K.expected.json"))),
        checkpoint(llama::Checkpoint::read(shared / "data/stories260K.bin")),
        runtime(open_runtime({.config_file = dir.write("config.yaml", anyattn::end_to_end::cpu_config()), .json = {}}, "")) {
    tokens.push_back(llama::kBos);
    for (const int id : expected["token_ids"]) tokens.push_back(id);
    tokens.resize(kFed);
  }

  // Logits of all fed tokens, `chunk` at a time.
  std::vector<float> logits(const TargetOptions& target, int chunk) {
    llama::PagedAttention attention(runtime, checkpoint.shape(), target, chunk, kFed);
    CHECK(std::string(attention.info().backend) == "CPU_ATTN");
    llama::Model model(checkpoint, attention, chunk);
    std::vector<float> all;
    for (int start = 0; start < kFed; start += chunk) {
      const int count = std::min(chunk, kFed - start);
      const std::span<const float> rows = model.forward(std::span(tokens).subspan(start, count), start);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  TempDir dir;
  nlohmann::json expected;
  llama::Checkpoint checkpoint;
  anyattn::Runtime runtime;
  std::vector<int> tokens;
};

TargetOptions on_cpu(const std::string& dtype = "", uint32_t block_size = 0) {
  TargetOptions target;
  target.device = "cpu";
  target.dtype = dtype;
  target.block_size = block_size;
  return target;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("llama_logits_match_the_reference_through_the_runtime") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  Fixture fixture(*shared);
  const std::vector<float> logits = fixture.logits(on_cpu(), 1);
  const int vocab = fixture.checkpoint.shape().vocab_size;
  for (const auto& step : fixture.expected["first_steps"]) {
    const int position = step["position"];
    for (const auto& top : step["top5"]) {
      CHECK(std::abs(logits[position * vocab + top[0].get<int>()] - top[1].get<double>()) < 0.002);
    }
  }
}

TEST_CASE("llama_logits_do_not_depend_on_chunks_or_blocks") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  Fixture fixture(*shared);
  const std::vector<float> one_by_one = fixture.logits(on_cpu(), 1);
  for (const int chunk : {7, 31, kFed}) {
    CAPTURE(chunk);
    CHECK(largest_difference(one_by_one, fixture.logits(on_cpu(), chunk)) < 0.002);
    CHECK(largest_difference(one_by_one, fixture.logits(on_cpu("", 5), chunk)) < 0.002);
  }
}

TEST_CASE("llama_logits_stay_near_in_16_bits") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  Fixture fixture(*shared);
  const std::vector<float> exact = fixture.logits(on_cpu(), 16);
  // Logits reach 20; an error of 2^-11 or 2^-8 in q and k, whose scores reach 193, moves single weights visibly.
  CHECK(largest_difference(exact, fixture.logits(on_cpu("float16"), 16)) < 0.5);
  CHECK(largest_difference(exact, fixture.logits(on_cpu("bfloat16"), 16)) < 4.0);
}
