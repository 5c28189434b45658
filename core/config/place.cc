// SPDX-License-Identifier: Apache-2.0
#include "config/place.h"

#include <fmt/format.h>

#include "config/config.h"

namespace anyattn::config {

void fail(const std::string& file, Mark mark, std::string_view path, std::string_view text) {
  std::string where = mark.line ? fmt::format("{}:{}:{}: ", file, mark.line, mark.column) : fmt::format("{}: ", file);
  if (!path.empty()) where += fmt::format("{}: ", path);
  throw ConfigError(where + std::string(text));
}

std::string quote(std::string_view text, size_t most) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (i >= most && (c & 0xc0u) != 0x80u) return out + "...\"";
    if (c == '\n')
      out += "\\n";
    else if (c == '"' || c == '\\')
      out += {'\\', text[i]};
    else if (c < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += text[i];
  }
  return out + "\"";
}

std::string join_path(std::string_view path, std::string_view key) {
  // A key that would not read as one word is shown in quotes, so that a trailing space is seen.
  const bool word =
      !key.empty() &&
      key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/+") == std::string_view::npos &&
      key.size() <= 60;
  const std::string shown = word ? std::string(key) : quote(key);
  return path.empty() ? shown : fmt::format("{}.{}", path, shown);
}

std::string join_path(std::string_view path, size_t index) { return fmt::format("{}[{}]", path, index); }

}  // namespace anyattn::config
