// SPDX-License-Identifier: Apache-2.0
// Where the real inputs are: ANYATTN_SHARED_DIR, else ../shared beside the source tree. Included by tests that read them.
// Absent: the test is skipped with a printed line, or fails where ANYATTN_REQUIRE_ALL=1.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

namespace anyattn::testing {

inline std::optional<std::filesystem::path> shared_dir() {
  const char* named = std::getenv("ANYATTN_SHARED_DIR");
  const std::filesystem::path path = named && *named ? named : ANYATTN_SOURCE_DIR "/../shared";
  std::error_code ignored;
  if (std::filesystem::is_directory(path / "data", ignored)) return path;
  const char* require = std::getenv("ANYATTN_REQUIRE_ALL");
  if (require && std::string_view(require) == "1") {
    FAIL("the shared inputs are required and not at ", path.string());
  }
  std::printf("SKIPPED: no shared inputs at %s\n", path.c_str());
  return std::nullopt;
}

}  // namespace anyattn::testing
