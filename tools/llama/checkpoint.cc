// SPDX-License-Identifier: Apache-2.0
#include "llama/checkpoint.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/failure.h"

namespace anyattn::tools::llama {
namespace {

constexpr int kHeaderInts = 7;
constexpr uint64_t kHeaderBytes = kHeaderInts * sizeof(int32_t);
constexpr int32_t kVersionedMagic = 0x616b3432;  // "ak42": version 1 and 2 files start with it

static_assert(std::endian::native == std::endian::little, "the file is read as it lies");

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Failure(kExitUsage, fmt::format("checkpoint {}: {}", path, what));
}

// Limits are far above any model of this file format; they keep every product below in 64 bits.
void check(const std::string& path, const char* name, int32_t value, int32_t most) {
  if (value < 1 || value > most) refuse(path, fmt::format("{}={} in the header; allowed: 1 to {}", name, value, most));
}

Shape read_header(const std::string& path, const std::array<int32_t, kHeaderInts>& header) {
  if (header[0] == kVersionedMagic) {
    refuse(path, fmt::format("a llama2.c file of version {}; only version 0 (legacy export) is read", header[1]));
  }
  const int32_t vocab = header[5];
  if (vocab == INT32_MIN) refuse(path, "vocab_size in the header is out of range");
  Shape shape;
  shape.dim = header[0];
  shape.hidden_dim = header[1];
  shape.num_layers = header[2];
  shape.num_q_heads = header[3];
  shape.num_kv_heads = header[4];
  shape.vocab_size = vocab < 0 ? -vocab : vocab;
  shape.max_seq_len = header[6];
  shape.shared_classifier = vocab > 0;
  check(path, "dim", shape.dim, 1 << 16);
  check(path, "hidden_dim", shape.hidden_dim, 1 << 20);
  check(path, "n_layers", shape.num_layers, 1 << 12);
  check(path, "n_heads", shape.num_q_heads, shape.dim);
  check(path, "n_kv_heads", shape.num_kv_heads, shape.num_q_heads);
  check(path, "vocab_size", shape.vocab_size, 1 << 24);
  check(path, "seq_len", shape.max_seq_len, 1 << 24);
  if (shape.dim % shape.num_q_heads != 0)
    refuse(path, fmt::format("n_heads={} does not divide dim={}", shape.num_q_heads, shape.dim));
  if (shape.head_size() % 2 != 0) {
    refuse(path, fmt::format("head size {} is odd; rotary positions turn pairs", shape.head_size()));
  }
  if (shape.num_q_heads % shape.num_kv_heads != 0) {
    refuse(path, fmt::format("n_kv_heads={} does not divide n_heads={}", shape.num_kv_heads, shape.num_q_heads));
  }
  return shape;
}

// Lays the arrays out one after another; run once without data to count, once with data to point.
class Cursor {
 public:
  explicit Cursor(std::span<const float> floats) : floats_(floats) {}
  std::span<const float> take(uint64_t count) {
    const uint64_t start = at_;
    at_ += count;
    return at_ <= floats_.size() ? floats_.subspan(start, count) : std::span<const float>{};
  }
  uint64_t taken() const { return at_; }

 private:
  std::span<const float> floats_;
  uint64_t at_ = 0;
};

Weights lay_out(const Shape& s, Cursor& cursor) {
  const uint64_t layers = s.num_layers, dim = s.dim, kv = s.kv_dim(), hidden = s.hidden_dim, vocab = s.vocab_size;
  Weights w;
  w.token_embedding = cursor.take(vocab * dim);
  w.attention_norm = cursor.take(layers * dim);
  w.wq = cursor.take(layers * dim * dim);
  w.wk = cursor.take(layers * kv * dim);
  w.wv = cursor.take(layers * kv * dim);
  w.wo = cursor.take(layers * dim * dim);
  w.ffn_norm = cursor.take(layers * dim);
  w.w1 = cursor.take(layers * hidden * dim);
  w.w2 = cursor.take(layers * dim * hidden);
  w.w3 = cursor.take(layers * hidden * dim);
  w.final_norm = cursor.take(dim);
  cursor.take(static_cast<uint64_t>(s.max_seq_len) * s.head_size());  // both RoPE tables
  w.classifier = s.shared_classifier ? w.token_embedding : cursor.take(vocab * dim);
  return w;
}

}  // namespace

Checkpoint Checkpoint::read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "no such file");
  const uint64_t bytes = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) refuse(path, "cannot be opened for reading");

  std::array<int32_t, kHeaderInts> header{};
  if (bytes < kHeaderBytes) refuse(path, fmt::format("{} bytes; the header alone has {}", bytes, kHeaderBytes));
  in.read(reinterpret_cast<char*>(header.data()), kHeaderBytes);
  if (!in) refuse(path, "cannot be read");

  Checkpoint checkpoint;
  checkpoint.shape_ = read_header(path, header);
  Cursor counter({});
  lay_out(checkpoint.shape_, counter);
  const uint64_t expected = kHeaderBytes + counter.taken() * sizeof(float);
  if (bytes != expected) {
    refuse(path, fmt::format("{} bytes, but its header asks for exactly {}: {}", bytes, expected,
                             bytes < expected ? "the file is cut short" : "there is something after the weights"));
  }

  checkpoint.floats_.resize(counter.taken());
  in.read(reinterpret_cast<char*>(checkpoint.floats_.data()), static_cast<std::streamsize>(bytes - kHeaderBytes));
  if (!in) refuse(path, "cannot be read to its end");
  Cursor cursor(checkpoint.floats_);
  checkpoint.weights_ = lay_out(checkpoint.shape_, cursor);
  return checkpoint;
}

}  // namespace anyattn::tools::llama
