// SPDX-License-Identifier: Apache-2.0
// Machine code on disk, one file a key. A file is whole or absent: written beside and renamed, checked when read. Private to
// the user: a folder or file that others may write, or that belongs to neither the user nor root, is not used. Losing it costs
// a compilation, never an answer.
#pragma once

#include <string>
#include <string_view>

namespace anyattn::portable {

class CodeCache {
 public:
  // auto: .cache/anyattn/kernels in the user's home; off: nothing is kept; else a folder.
  explicit CodeCache(std::string_view option);

  // Empty where there is none, or where the file is not what was written.
  std::string find(const std::string& key) const;
  // Is there a file for the key? What it holds, find says.
  bool has(const std::string& key) const;
  // Best effort. Removes the oldest files past kMaxBytes.
  void keep(const std::string& key, const std::string& code) const;

 private:
  std::string folder_;  // empty: off
};

}  // namespace anyattn::portable
