// SPDX-License-Identifier: Apache-2.0
// Reads a plugin file whole and names its content. Included by discovery and the loader, which compares before it opens.
// Judges nothing of what it read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anyattn::discovery {

// What the file system says of a file without reading it. Nobody but the system sets changed_ns: a write moves it, and so does
// setting modified_ns back.
struct FileFacts {
  uint64_t device = 0;  // with inode: the file, whatever it is called
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  bool operator==(const FileFacts&) const = default;
};
// Of a regular file; links are followed.
std::optional<FileFacts> facts_of(const std::string& path);

struct FileContent {
  std::vector<std::byte> bytes;
  std::string hash;         // 64 hex digits: BLAKE2b-256
  FileFacts facts;          // of the descriptor that was read
  bool held_still = false;  // the facts were the same before and after reading
  std::string error;        // set: nothing above is; continues "FILE ..."
};

// Regular files up to 4 GiB; links are followed.
FileContent read_content(const std::string& path);

// 64 hex digits: BLAKE2b-256 of a text.
std::string hash_text(std::string_view text);

}  // namespace anyattn::discovery
