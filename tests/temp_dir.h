// SPDX-License-Identifier: Apache-2.0
// A folder of one test's own, gone afterwards, and the files it writes there. Included by tests.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace anyattn::testing {

// Only the user may write to it; its path is canonical.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "anyattn_test_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a folder for the test");
    path_ = std::filesystem::canonical(name);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& folder() const { return path_; }
  // Writes the file, with folders above it that lack, and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace anyattn::testing
