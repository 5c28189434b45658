// SPDX-License-Identifier: Apache-2.0
// The weights of a small Llama, read from a llama2.c checkpoint of version 0. Included by the model and its tests.
// Computes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace anyattn::tools::llama {

struct Shape {
  int dim = 0;         // width of the residual stream
  int hidden_dim = 0;  // of the feed-forward layer
  int num_layers = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int vocab_size = 0;
  int max_seq_len = 0;
  bool shared_classifier = true;  // the classifier is the embedding

  int head_size() const { return dim / num_q_heads; }
  int kv_dim() const { return head_size() * num_kv_heads; }
};

// Row-major float32 arrays inside Checkpoint::floats; [L] = one after another for each layer.
struct Weights {
  std::span<const float> token_embedding;  // [vocab, dim]
  std::span<const float> attention_norm;   // [L][dim]
  std::span<const float> wq;               // [L][dim, dim]
  std::span<const float> wk;               // [L][kv_dim, dim]
  std::span<const float> wv;               // [L][kv_dim, dim]
  std::span<const float> wo;               // [L][dim, dim]
  std::span<const float> ffn_norm;         // [L][dim]
  std::span<const float> w1;               // [L][hidden, dim], gate
  std::span<const float> w2;               // [L][dim, hidden], down
  std::span<const float> w3;               // [L][hidden, dim], up
  std::span<const float> final_norm;       // [dim]
  std::span<const float> classifier;       // [vocab, dim]
};

class Checkpoint {
 public:
  // Little-endian: seven int32 (dim, hidden_dim, layers, q heads, kv heads, vocab, seq_len; vocab < 0: own classifier), the arrays
  // in the order above, two RoPE tables [seq_len, head_size / 2] before an own classifier that nobody reads, and nothing else.
  // Throws Failure(kExitUsage) naming the file and what is wrong with it.
  static Checkpoint read(const std::string& path);

  const Shape& shape() const { return shape_; }
  const Weights& weights() const { return weights_; }

 private:
  Shape shape_;
  std::vector<float> floats_;  // what weights_ points into; moving a vector keeps its address
  Weights weights_;
};

}  // namespace anyattn::tools::llama
