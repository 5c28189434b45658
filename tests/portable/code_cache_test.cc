// SPDX-License-Identifier: Apache-2.0
// What the disk cache of compiled kernels gives back: whole files of its own, nothing else.
#include "code_cache.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "temp_dir.h"

namespace {

namespace fs = std::filesystem;
using anyattn::portable::CodeCache;

class Folder : public anyattn::testing::TempDir {
 public:
  fs::path only_file() const {
    fs::path found;
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder())) {
      found = entry.path();
      ++count;
    }
    REQUIRE(count == 1);
    return found;
  }
};

const std::string kCode(5000, 'x');

}  // namespace

TEST_CASE("code_cache_gives_back_what_was_kept_for_the_same_key_only") {
  const Folder folder;
  const CodeCache cache(folder.path());
  CHECK(cache.find("sm_90 program") == "");
  cache.keep("sm_90 program", kCode);
  CHECK(CodeCache(folder.path()).find("sm_90 program") == kCode);
  CHECK(cache.find("sm_80 program") == "");
  struct stat status;
  REQUIRE(stat(folder.only_file().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("code_cache_gives_nothing_from_a_damaged_file") {
  const Folder folder;
  const CodeCache cache(folder.path());
  cache.keep("key", kCode);
  const fs::path file = folder.only_file();
  const auto size = fs::file_size(file);

  fs::resize_file(file, size - 1);
  CHECK(cache.find("key") == "");
  cache.keep("key", kCode);  // written anew over it
  CHECK(cache.find("key") == kCode);
  {
    std::fstream edit(file, std::ios::in | std::ios::out | std::ios::binary);
    edit.seekp(static_cast<std::streamoff>(size - 100));
    edit.put('y');
  }
  CHECK(cache.find("key") == "");
  cache.keep("key", kCode);
  std::ofstream(file, std::ios::app) << "tail";
  CHECK(cache.find("key") == "");
}

TEST_CASE("code_cache_reads_nothing_that_others_may_write") {
  const Folder folder;
  const CodeCache cache(folder.path());
  cache.keep("key", kCode);
  fs::permissions(folder.only_file(), fs::perms::others_write, fs::perm_options::add);
  CHECK(cache.find("key") == "");
  fs::permissions(folder.only_file(), fs::perms::others_write, fs::perm_options::remove);
  CHECK(cache.find("key") == kCode);
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::add);
  CHECK(cache.find("key") == "");
}

TEST_CASE("code_cache_off_keeps_nothing") {
  const CodeCache cache("off");
  cache.keep("key", kCode);
  CHECK(cache.find("key") == "");
}
