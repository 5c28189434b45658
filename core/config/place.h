// SPDX-License-Identifier: Apache-2.0
// Where in a file something stands, and how a message says it. Included inside core/config only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anyattn::config {

// 1-based; line 0 is a default that stands in no file.
struct Mark {
  uint32_t line = 0;
  uint32_t column = 0;
};

// Throws ConfigError "FILE:LINE:COLUMN: PATH: TEXT".
[[noreturn]] void fail(const std::string& file, Mark mark, std::string_view path, std::string_view text);

// A value as it may stand in a line: in quotes, control characters escaped, cut after `most` bytes.
std::string quote(std::string_view text, size_t most = 60);

// "plugins" + "search" -> "plugins.search"; "" + "plugins" -> "plugins".
std::string join_path(std::string_view path, std::string_view key);
// "plugins.search" + 2 -> "plugins.search[2]".
std::string join_path(std::string_view path, size_t index);

}  // namespace anyattn::config
