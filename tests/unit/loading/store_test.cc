// SPDX-License-Identifier: Apache-2.0
// The folder of private copies is bounded; a copy that a process holds is never removed.
#include "loader/store.h"

#include <sys/wait.h>

#include <array>

#include "loader/store_limits.h"
#include "unit/loading/fakes.h"

namespace {

namespace fs = std::filesystem;
using anyattn::loader::hold_copy;
using anyattn::loader::prune_store;
using anyattn::loader::StoreLimits;

// A copy that nobody holds, last used `age` hours ago.
fs::path put(const fs::path& store, const std::string& name, int age, size_t bytes) {
  fs::create_directories(store / name / "lib");
  fakes::write_file(store / name / "anyattn_x.so", std::string(bytes, 'x'));
  fakes::write_file(store / name / "lib/libx.so", "x");
  fs::last_write_time(store / name, fs::file_time_type::clock::now() - std::chrono::hours(age));
  return store / name;
}

// Another process that holds a folder until it is let go.
class Holder {
 public:
  explicit Holder(const fs::path& folder) {
    REQUIRE(::pipe(ready_.data()) == 0);
    REQUIRE(::pipe(end_.data()) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::close(end_[1]);
      const char answer = hold_copy(folder.string()).empty() ? 'y' : 'n';
      char byte = 0;
      const bool told = ::write(ready_[1], &answer, 1) == 1;
      ::_exit(told && ::read(end_[0], &byte, 1) == 0 ? 0 : 1);
    }
    char answer = 0;
    REQUIRE(::read(ready_[0], &answer, 1) == 1);
    REQUIRE(answer == 'y');
  }
  void let_go() {
    ::close(end_[1]);
    int status = 0;
    ::waitpid(child_, &status, 0);
    CHECK(status == 0);
  }

 private:
  std::array<int, 2> ready_{}, end_{};
  pid_t child_ = -1;
};

size_t count(const fs::path& store) { return static_cast<size_t>(std::distance(fs::directory_iterator(store), {})); }

}  // namespace

TEST_CASE("copies_used_longest_ago_go_first_and_held_ones_never") {
  const fakes::TempFolder folder;
  const fs::path store = folder.path() / "copies";
  for (int age = 1; age <= 9; ++age) put(store, "copy" + std::to_string(age), age, 10);
  put(store, ".gone_copy20_7", 1, 10);
  Holder other(store / "copy8");  // marks it as used now
  fs::last_write_time(store / "copy8", fs::file_time_type::clock::now() - std::chrono::hours(8));
  CHECK(hold_copy((store / "copy9").string()).empty());  // by this process, and so used now

  prune_store(store.string(), {.contents = 3});
  for (const char* name : {"copy1", "copy2", "copy8", "copy9"}) CHECK(fs::exists(store / name / "lib/libx.so"));
  CHECK(count(store) == 4);  // three, and the one that is held beyond them

  other.let_go();
  fs::last_write_time(store / "copy8", fs::file_time_type::clock::now() - std::chrono::hours(8));
  prune_store(store.string(), {.contents = 1});
  CHECK(fs::exists(store / "copy9"));
  CHECK(count(store) == 1);
  prune_store(store.string(), {.contents = 0});
  CHECK(fs::exists(store / "copy9"));
}

TEST_CASE("copies_are_bounded_by_their_bytes") {
  const fakes::TempFolder folder;
  put(folder.path(), "large", 1, 1000);
  put(folder.path(), "small", 2, 10);
  put(folder.path(), "old", 3, 2000);
  prune_store(folder.path().string(), {.bytes = 1500});
  CHECK(fs::exists(folder.path() / "large"));
  CHECK(fs::exists(folder.path() / "small"));
  CHECK_FALSE(fs::exists(folder.path() / "old"));
}

TEST_CASE("a_copy_that_was_removed_by_hand_is_made_and_held_again") {
  const fakes::TempFolder folder;
  const std::string copy = (folder.path() / "copies/one").string();
  CHECK(hold_copy(copy).empty());
  fs::remove_all(copy);
  CHECK(hold_copy(copy).empty());
  CHECK(fs::exists(copy));
  prune_store((folder.path() / "copies").string(), {.contents = 0});
  CHECK(fs::exists(copy));
}
