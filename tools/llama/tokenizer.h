// SPDX-License-Identifier: Apache-2.0
// The pieces of a llama2.c tokenizer: token ids to text. Included by generate. Does not encode: the model starts from BOS.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace anyattn::tools::llama {

inline constexpr int kBos = 1;  // begins every text

class Tokenizer {
 public:
  // Little-endian: int32 longest piece, then for each of `vocab_size` ids float32 score, int32 length, bytes; nothing else.
  // Throws Failure(kExitUsage) naming the file and what is wrong with it.
  static Tokenizer read(const std::string& path, int vocab_size);

  // The text of `ids` after `previous`: a piece right after BOS loses its leading blank; <0xNN> is that byte. Bytes that make no
  // UTF-8 come out as they are. ids are below vocab_size.
  std::string decode(std::span<const int> ids, int previous = kBos) const;

 private:
  std::vector<std::string> pieces_;
};

}  // namespace anyattn::tools::llama
