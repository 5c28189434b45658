// SPDX-License-Identifier: Apache-2.0
// The bytes of a YAML file before they are parsed. Included by yaml_tree.cc only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace anyattn::config {

// A regular file of at most `limit` bytes; never waits for a pipe. Throws ConfigError.
std::string read_text_file(const std::string& file, size_t limit);

// What the parser would take without a word: bytes that are no UTF-8, tabs as indentation, directives. Throws ConfigError.
void refuse_bad_lines(std::string_view text, const std::string& file);

}  // namespace anyattn::config
