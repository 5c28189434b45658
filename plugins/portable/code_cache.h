// SPDX-License-Identifier: Apache-2.0
// Machine code on disk, one file a key. A file is whole or absent: written beside and renamed, checked when read. Private to
// the user: a folder or file that others may write, or that belongs to neither the user nor root, is not used. Losing it costs
// a compilation, never an answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anyattn::portable {

class CodeCache {
 public:
  static constexpr uint64_t kMaxBytes = 256u << 20;  // about 800 problems
  // auto: .cache/anyattn/kernels in the user's home; off: nothing is kept; else a folder. max_bytes 0: it is read and not changed.
  // A process with more rights than its user (setuid) keeps and takes nothing.
  explicit CodeCache(std::string_view option, uint64_t max_bytes = kMaxBytes, bool more_rights = has_more_rights());

  // Empty where there is none, or where the file is not what was written.
  std::string find(const std::string& key) const;
  // Is there a file for the key? What it holds, find says.
  bool has(const std::string& key) const;
  // Best effort. Past max_bytes the files go that were longest not found.
  void keep(const std::string& key, const std::string& code) const;

 private:
  static bool has_more_rights();

  std::string folder_;  // empty: off
  uint64_t max_bytes_;
};

}  // namespace anyattn::portable
