// SPDX-License-Identifier: Apache-2.0
#include "llama/tokenizer.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/failure.h"

namespace anyattn::tools::llama {
namespace {

constexpr size_t kLongestPiece = 1 << 16;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Failure(kExitUsage, fmt::format("tokenizer {}: {}", path, what));
}

// "<0x0A>" -> the byte 10; false for every other piece.
bool is_byte_piece(const std::string& piece, char& byte) {
  if (piece.size() != 6 || piece.compare(0, 3, "<0x") != 0 || piece[5] != '>') return false;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  byte = static_cast<char>(value);
  return error == std::errc{} && end == piece.data() + 5;
}

}  // namespace

Tokenizer Tokenizer::read(const std::string& path, int vocab_size) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "no such file");
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse(path, "cannot be opened for reading");
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());

  size_t at = sizeof(int32_t);
  Tokenizer tokenizer;
  for (int id = 0; id < vocab_size; ++id) {
    int32_t length = 0;
    if (at + sizeof(float) + sizeof length > bytes.size()) {
      refuse(path, fmt::format("ends inside piece {}; the checkpoint has {} tokens", id, vocab_size));
    }
    std::memcpy(&length, bytes.data() + at + sizeof(float), sizeof length);
    at += sizeof(float) + sizeof length;
    if (length < 0 || static_cast<size_t>(length) > kLongestPiece || at + length > bytes.size()) {
      refuse(path, fmt::format("piece {} says {} bytes; {} are left in the file", id, length, bytes.size() - at));
    }
    tokenizer.pieces_.push_back(bytes.substr(at, length));
    at += length;
  }
  if (at != bytes.size()) {
    refuse(path,
           fmt::format("{} bytes are left after {} pieces: it belongs to another checkpoint", bytes.size() - at, vocab_size));
  }
  return tokenizer;
}

std::string Tokenizer::decode(std::span<const int> ids, int previous) const {
  std::string text;
  for (const int id : ids) {
    const std::string& piece = pieces_.at(id);
    char byte = 0;
    if (is_byte_piece(piece, byte)) {
      text += byte;
    } else if (previous == kBos && piece.starts_with(' ')) {
      text.append(piece, 1);
    } else {
      text += piece;
    }
    previous = id;
  }
  return text;
}

}  // namespace anyattn::tools::llama
