// SPDX-License-Identifier: Apache-2.0
// The small Llama: its files, and its numbers against the reference run of the real model, with an attention written here.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/failure.h"
#include "llama/checkpoint.h"
#include "llama/model.h"
#include "llama/tokenizer.h"
#include "shared_dir.h"
#include "temp_dir.h"

using namespace anyattn::tools;
using anyattn::testing::TempDir;
using llama::Checkpoint;
using llama::Model;
using llama::Tokenizer;

namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

constexpr int kTinyFloats = 130;  // of the header below

// dim 4, hidden 3, 1 layer, 2 q heads, 1 kv head, 5 tokens, 7 positions; negative vocab: own classifier.
std::vector<int32_t> tiny_header() { return {4, 3, 1, 2, 1, 5, 7}; }

std::string refusal_of(const std::vector<int32_t>& header, size_t floats) {
  TempDir dir;
  const std::string path = dir.write("model.bin", bytes_of(header) + bytes_of(std::vector<float>(floats, 1.0f)));
  try {
    Checkpoint::read(path);
  } catch (const Failure& failure) {
    CHECK(failure.code() == kExitUsage);
    CHECK(std::string(failure.what()).find(path) != std::string::npos);
    return failure.what();
  }
  return "";
}

bool says(const std::string& text, const char* what) {
  INFO(text);
  return text.find(what) != std::string::npos;
}

// Plain attention over everything stored, in double: one sequence, scores, softmax, sum.
class PlainAttention : public llama::Attention {
 public:
  explicit PlainAttention(const llama::Shape& shape) : shape_(shape), keys_(shape.num_layers), values_(shape.num_layers) {}
  void begin_step(int position, int num_tokens) override {
    position_ = position;
    num_tokens_ = num_tokens;
  }
  void attend(int layer, std::span<const float> q, std::span<const float> k, std::span<const float> v,
              std::span<float> out) override {
    auto& keys = keys_[layer];
    auto& values = values_[layer];
    keys.insert(keys.end(), k.begin(), k.end());
    values.insert(values.end(), v.begin(), v.end());
    for (int t = 0; t < num_tokens_; ++t) {
      for (int h = 0; h < shape_.num_q_heads; ++h) attend_row(keys, values, q, t, h, out);
    }
  }

 private:
  void attend_row(const std::vector<float>& keys, const std::vector<float>& values, std::span<const float> q, int t, int h,
                  std::span<float> out) {
    const int size = shape_.head_size(), kv_head = h / (shape_.num_q_heads / shape_.num_kv_heads);
    const float* query = q.data() + (t * shape_.num_q_heads + h) * size;
    std::vector<double> weights;
    double largest = -INFINITY, total = 0;
    for (int j = 0; j <= position_ + t; ++j) {
      double score = 0;
      for (int d = 0; d < size; ++d) score += double(query[d]) * keys[j * shape_.kv_dim() + kv_head * size + d];
      weights.push_back(score / std::sqrt(double(size)));
      largest = std::max(largest, weights.back());
    }
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    for (int d = 0; d < size; ++d) {
      double sum = 0;
      for (size_t j = 0; j < weights.size(); ++j) sum += weights[j] * values[j * shape_.kv_dim() + kv_head * size + d];
      out[(t * shape_.num_q_heads + h) * size + d] = static_cast<float>(sum / total);
    }
  }

  llama::Shape shape_;
  int position_ = 0, num_tokens_ = 0;
  std::vector<std::vector<float>> keys_, values_;
};

int largest(std::span<const float> logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

TEST_CASE("checkpoint_of_the_right_size_is_read") {
  TempDir dir;
  std::vector<float> floats(kTinyFloats);
  for (int i = 0; i < kTinyFloats; ++i) floats[i] = static_cast<float>(i);
  const Checkpoint shared = Checkpoint::read(dir.write("a.bin", bytes_of(tiny_header()) + bytes_of(floats)));
  CHECK(shared.shape().head_size() == 2);
  CHECK(shared.shape().kv_dim() == 2);
  CHECK(shared.weights().attention_norm[0] == 20);  // after 5 x 4 embeddings
  CHECK(shared.weights().final_norm[3] == 115);     // the last before the RoPE tables
  CHECK(shared.weights().classifier.data() == shared.weights().token_embedding.data());

  std::vector<int32_t> own = tiny_header();
  own[5] = -5;
  floats.resize(kTinyFloats + 20, 9.0f);
  const Checkpoint apart = Checkpoint::read(dir.write("b.bin", bytes_of(own) + bytes_of(floats)));
  CHECK_FALSE(apart.shape().shared_classifier);
  CHECK(apart.shape().vocab_size == 5);
  CHECK(apart.weights().classifier.size() == 20);
  CHECK(apart.weights().classifier[0] == 9.0f);
}

TEST_CASE("checkpoint_refusals_say_what_is_wrong") {
  CHECK(says(refusal_of({4, 3}, 0), "the header alone has 28"));
  CHECK(says(refusal_of(tiny_header(), kTinyFloats - 1), "cut short"));
  CHECK(says(refusal_of(tiny_header(), kTinyFloats + 1), "after the weights"));
  CHECK(says(refusal_of({0x616b3432, 1, 1, 1, 1, 1, 1}, 10), "version 1"));
  const struct {
    int at;
    int32_t value;
    const char* text;
  } bad[] = {
      {0, 0, "dim=0"},  {0, -4, "dim=-4"},      {1, 0, "hidden_dim=0"}, {2, 1 << 30, "n_layers="},    {3, 3, "does not divide"},
      {3, 4, "is odd"}, {4, 3, "n_kv_heads=3"}, {5, 0, "vocab_size=0"}, {5, INT32_MIN, "vocab_size"}, {6, 0, "seq_len=0"}};
  for (const auto& row : bad) {
    std::vector<int32_t> header = tiny_header();
    header[row.at] = row.value;
    CHECK(says(refusal_of(header, kTinyFloats), row.text));
  }
  CHECK_THROWS_AS(Checkpoint::read("/nonexistent/model.bin"), Failure);
}

TEST_CASE("tokenizer_decodes_bytes_and_the_blank_after_bos") {
  TempDir dir;
  std::string file = bytes_of(std::vector<int32_t>{6});
  for (const std::string piece : {"<unk>", "\n<s>\n", " the", "<0x41>", "<0xZZ>"}) {
    file += bytes_of(std::vector<float>{0.0f}) + bytes_of(std::vector<int32_t>{static_cast<int32_t>(piece.size())}) + piece;
  }
  const std::string path = dir.write("tok.bin", file);
  const Tokenizer tokenizer = Tokenizer::read(path, 5);
  CHECK(tokenizer.decode(std::vector<int>{2, 2, 3, 4}) == "the theA<0xZZ>");
  CHECK(tokenizer.decode(std::vector<int>{2}, 0) == " the");
  CHECK(tokenizer.decode({}) == "");

  const auto refused = [&](const std::string& text, int vocab) {
    try {
      Tokenizer::read(dir.write("bad.bin", text), vocab);
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  CHECK(says(refused(file, 4), "14 bytes are left after 4 pieces"));
  CHECK(says(refused(file, 6), "ends inside piece 5"));
  CHECK(says(refused(file.substr(0, file.size() - 2), 5), "piece 4 says 6 bytes"));
  CHECK(says(refused("", 5), "ends inside piece 0"));
  CHECK_THROWS_AS(Tokenizer::read(dir / "absent.bin", 5), Failure);
}

TEST_CASE("llama_gives_the_reference_tokens_one_at_a_time") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  const auto expected = nlohmann::json::parse(anyattn::testing::read_file(*shared / "data/stories260K.expected.json"));
  const Checkpoint checkpoint = Checkpoint::read(*shared / "data/stories260K.bin");
  const Tokenizer tokenizer = Tokenizer::read(*shared / "data/tok512.bin", checkpoint.shape().vocab_size);
  PlainAttention attention(checkpoint.shape());
  Model model(checkpoint, attention, 1);

  std::vector<int> ids;
  int token = llama::kBos;
  for (int step = 0; step < 200; ++step) {
    const std::span<const float> logits = model.forward(std::vector<int>{token}, step);
    if (step < 8) {
      for (const auto& top : expected["first_steps"][step]["top5"]) {
        CHECK(std::abs(logits[top[0].get<int>()] - top[1].get<double>()) < 1e-4);
      }
    }
    token = largest(logits);
    ids.push_back(token);
  }
  CHECK(ids == expected["token_ids"].get<std::vector<int>>());
  CHECK(tokenizer.decode(ids) == expected["text"].get<std::string>());
}

TEST_CASE("llama_gives_the_same_logits_in_chunks") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  const auto expected = nlohmann::json::parse(anyattn::testing::read_file(*shared / "data/stories260K.expected.json"));
  const Checkpoint checkpoint = Checkpoint::read(*shared / "data/stories260K.bin");
  std::vector<int> fed = {llama::kBos};
  for (const int id : expected["token_ids"]) fed.push_back(id);
  fed.resize(48);

  PlainAttention one_by_one(checkpoint.shape()), chunked(checkpoint.shape());
  Model single(checkpoint, one_by_one, 1), chunks(checkpoint, chunked, 31);
  const int vocab = checkpoint.shape().vocab_size;
  for (int start = 0; start < 48;) {
    const int count = start == 0 ? 31 : 17;
    const std::span<const float> logits = chunks.forward(std::span(fed).subspan(start, count), start);
    for (int t = 0; t < count; ++t) {
      const std::span<const float> row = single.forward(std::span(fed).subspan(start + t, 1), start + t);
      for (int i = 0; i < vocab; ++i) REQUIRE(row[i] == logits[t * vocab + i]);
    }
    start += count;
  }
  CHECK_THROWS_AS(single.forward(std::vector<int>{1, 1}, 0), std::out_of_range);
  CHECK_THROWS_AS(single.forward(std::vector<int>{1}, 512), std::out_of_range);
}
