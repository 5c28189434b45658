// SPDX-License-Identifier: Apache-2.0
// anyattn generate: greedy text of a small Llama, from BOS, whose attention goes only through the runtime.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "common/interrupt.h"
#include "common/runtime.h"
#include "common/table.h"
#include "common/terminal.h"
#include "llama/paged_attention.h"
#include "llama/tokenizer.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

struct Generated {
  std::vector<int> token_ids;
  std::string text;
  double seconds = 0;
};

// First of the largest.
int argmax(std::span<const float> logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// live: the text appears as it comes; control characters of a strange tokenizer never reach the terminal.
Generated decode_greedily(llama::Model& model, const llama::Tokenizer& tokenizer, uint32_t num_tokens, bool live) {
  Generated generated;
  const auto start = std::chrono::steady_clock::now();
  int token = llama::kBos;
  for (uint32_t step = 0; step < num_tokens && !interrupted(); ++step) {
    const int previous = token;
    token = argmax(model.forward(std::span(&previous, 1), static_cast<int>(step)));
    generated.token_ids.push_back(token);
    const std::string piece = tokenizer.decode(std::span(&token, 1), previous);
    generated.text += piece;
    if (live) {
      fmt::print("{}", printable(piece));
      std::fflush(stdout);
    }
  }
  generated.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return generated;
}

}  // namespace

int generate(const GenerateOptions& options) {
  const JsonOutput output(options.common.json);
  const llama::Checkpoint checkpoint = llama::Checkpoint::read(options.checkpoint);
  const llama::Shape& shape = checkpoint.shape();
  const llama::Tokenizer tokenizer = llama::Tokenizer::read(options.tokenizer, shape.vocab_size);
  if (options.num_tokens > static_cast<uint32_t>(shape.max_seq_len)) {
    throw Failure(kExitUsage,
                  fmt::format("--tokens {}: this checkpoint has {} positions", options.num_tokens, shape.max_seq_len));
  }

  const Runtime runtime = open_runtime(options.common, options.target.backend);
  llama::PagedAttention attention(runtime, shape, options.target, 1, static_cast<int>(options.num_tokens));
  llama::Model model(checkpoint, attention, 1);
  catch_interrupt();
  const bool live = output.table() && terminal_of(1).interactive;
  const Generated generated = decode_greedily(model, tokenizer, options.num_tokens, live);

  const anyattn_group_info& info = attention.info();
  const double rate = static_cast<double>(generated.token_ids.size()) / std::max(generated.seconds, 1e-9);
  if (output.table()) {
    if (!live) fmt::print("{}", printable(generated.text));
    fmt::print("\n\n{} tokens by {} of {}, {:.0f} tokens/s\n", generated.token_ids.size(), info.backend, info.plugin, rate);
  }
  output.write({{"token_ids", generated.token_ids},
                {"text", generated.text},
                {"backend", info.backend},
                {"decode_backend", info.decode_backend},
                {"plugin", info.plugin},
                {"dtype", options.target.dtype.empty() ? "float32" : options.target.dtype},
                {"kv_cache_dtype", info.kv_cache_dtype},
                {"block_size", info.block_size},
                {"tokens_per_s", rate},
                {"interrupted", interrupted()}});
  return interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace anyattn::tools
