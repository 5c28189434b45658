// SPDX-License-Identifier: Apache-2.0
// Reads a plugin file whole and names its content. Included by discovery and the loader, which compares before it opens.
// Judges nothing of what it read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyattn::discovery {

struct FileContent {
  std::vector<std::byte> bytes;
  std::string hash;     // 64 hex digits: BLAKE2b-256
  uint64_t device = 0;  // with inode: the file, whatever it is called
  uint64_t inode = 0;
  std::string error;  // set: nothing above is; continues "FILE ..."
};

// Regular files up to 4 GiB; links are followed.
FileContent read_content(const std::string& path);

// 64 hex digits: BLAKE2b-256 of a text.
std::string hash_text(std::string_view text);

}  // namespace anyattn::discovery
