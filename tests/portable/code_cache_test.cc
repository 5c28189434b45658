// SPDX-License-Identifier: Apache-2.0
// What the disk cache of compiled kernels gives back: whole files of its own, nothing else.
#include "code_cache.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

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

TEST_CASE("code_cache_makes_its_folder_for_the_user_alone") {
  const Folder folder;
  const fs::path own = fs::path(folder.path()) / "cache" / "kernels";
  CodeCache(own.string()).keep("key", kCode);
  struct stat status;
  REQUIRE(stat(own.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  CHECK(CodeCache(own.string()).find("key") == kCode);
}

TEST_CASE("code_cache_follows_no_link") {
  const Folder folder;
  const fs::path own = fs::path(folder.path()) / "own", link = fs::path(folder.path()) / "link";
  CodeCache(own.string()).keep("key", kCode);
  fs::create_directory_symlink(own, link);
  CHECK(CodeCache(link.string()).find("key") == "");
  CodeCache(link.string()).keep("other", kCode);
  CHECK(CodeCache(own.string()).find("other") == "");

  const fs::path file = fs::directory_iterator(own)->path(), moved = fs::path(folder.path()) / "moved";
  fs::rename(file, moved);
  fs::create_symlink(moved, file);
  CHECK(CodeCache(own.string()).find("key") == "");
}

TEST_CASE("code_cache_makes_room_for_the_new_from_what_was_longest_not_found") {
  const Folder folder;
  const CodeCache cache(folder.path(), 4 * (kCode.size() + 100));
  const auto make_old = [&](int hours) {  // what was written just now
    for (const auto& entry : fs::directory_iterator(folder.folder()))
      if (entry.last_write_time() > fs::file_time_type::clock::now() - std::chrono::minutes(1))
        fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (const auto& [key, hours] :
       {std::pair("first", 4), std::pair("second", 3), std::pair("third", 2), std::pair("fourth", 1)}) {
    cache.keep(key, kCode);
    make_old(hours);
  }
  CHECK(cache.find("first") == kCode);  // found: it was used last
  cache.keep("fifth", kCode);
  CHECK(cache.find("first") == kCode);
  CHECK(cache.find("second") == "");
  CHECK(cache.find("third") == "");
  CHECK(cache.find("fourth") == "");
  CHECK(cache.find("fifth") == kCode);

  cache.keep("too large", std::string(5 * kCode.size(), 'x'));
  CHECK(cache.find("too large") == "");
  CHECK(cache.find("fifth") == kCode);
}

TEST_CASE("code_cache_counts_what_is_being_written_and_removes_what_killed_writers_left") {
  const Folder folder;
  const fs::path left = fs::path(folder.path()) / "0123456789abcdef0123456789abcdef.code.99999.0",
                 other = fs::path(folder.path()) / "notes.txt";
  for (const fs::path& file : {left, other}) {
    std::ofstream(file) << kCode << kCode;
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const CodeCache cache(folder.path(), 4 * kCode.size());
  cache.keep("key", kCode);
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(other));  // not the cache's

  std::ofstream(left) << kCode << kCode << kCode;
  cache.keep("other key", kCode);  // beside it there is room for one
  CHECK(fs::exists(left));
  CHECK(cache.find("key") == "");
  CHECK(cache.find("other key") == kCode);
}

TEST_CASE("code_cache_of_no_bytes_is_read_and_stays_as_it_is") {
  const Folder folder;
  CodeCache(folder.path()).keep("key", kCode);
  const fs::path file = folder.only_file();
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(file, before);
  const CodeCache cache(folder.path(), 0);
  CHECK(cache.find("key") == kCode);
  cache.keep("other", kCode);
  CHECK(folder.only_file() == file);
  CHECK(fs::last_write_time(file) < before + std::chrono::minutes(1));
}

TEST_CASE("code_cache_of_a_process_with_more_rights_than_its_user_is_off") {
  const Folder folder;
  CodeCache(folder.path()).keep("key", kCode);
  const CodeCache cache(folder.path(), CodeCache::kMaxBytes, true);
  CHECK(cache.find("key") == "");
  cache.keep("other", kCode);
  CHECK(CodeCache(folder.path()).find("other") == "");
}

TEST_CASE("code_cache_off_keeps_nothing") {
  const CodeCache cache("off");
  cache.keep("key", kCode);
  CHECK(cache.find("key") == "");
}
