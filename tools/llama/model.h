// SPDX-License-Identifier: Apache-2.0
// A small Llama in float32: RMSNorm, rotary positions on adjacent pairs, SwiGLU. Included by generate and its tests.
// Holds no attention: that is the Attention it is given.
#pragma once

#include <span>
#include <vector>

#include "llama/checkpoint.h"

namespace anyattn::tools::llama {

// The attention of all layers over one sequence. Throws on failure.
class Attention {
 public:
  virtual ~Attention() = default;
  // The next `num_tokens` rows of every layer stand at positions `position`, `position` + 1, ...; positions come in order.
  virtual void begin_step(int position, int num_tokens) = 0;
  // Stores k and v of this step, then attends causally over everything stored so far; softmax scale 1 / sqrt(head_size).
  //   q, out [num_tokens, num_q_heads, head_size] | k, v [num_tokens, num_kv_heads, head_size]
  virtual void attend(int layer, std::span<const float> q, std::span<const float> k, std::span<const float> v,
                      std::span<float> out) = 0;
};

class Model {
 public:
  // Both are borrowed. max_tokens: the most tokens a forward is given.
  Model(const Checkpoint& checkpoint, Attention& attention, int max_tokens);

  // One step of `tokens` (ids below vocab_size) that stand at `position` and after it; logits of each, [num_tokens, vocab_size],
  // valid until the next call.
  std::span<const float> forward(std::span<const int> tokens, int position);

 private:
  void attention_block(int layer, int num_tokens, int position);
  void feed_forward_block(int layer, int num_tokens);

  const Shape shape_;
  const Weights weights_;
  Attention& attention_;
  const int max_tokens_;
  std::vector<float> residual_, normed_, q_, k_, v_, attended_, projected_, gate_, up_, logits_;
};

}  // namespace anyattn::tools::llama
