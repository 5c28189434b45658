// SPDX-License-Identifier: Apache-2.0
// Files that were seen are not read again, and whatever changed is.
#include "discovery/seen_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "inspect/libraries.h"
#include "unit/loading/fakes.h"

namespace {

namespace fs = std::filesystem;
using anyattn::discovery::Found;
using anyattn::discovery::SeenFiles;

Found discover(const fakes::TempFolder& plugins, SeenFiles& seen, anyattn::inspect::LibrarySearch* libraries = nullptr,
               anyattn::config::TrustLevel level = anyattn::config::TrustLevel::kNone) {
  anyattn::config::Config config = fakes::config_of({plugins.path()});
  config.trust_level = level;
  anyattn::discovery::Host host = fakes::host();
  host.seen = &seen;
  host.libraries = libraries;
  return anyattn::discovery::discover(config, host);
}

// Other bytes of the same number behind the same name, with the time of the last write set back.
void change_in_place(const fs::path& path) {
  struct stat before{};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  std::string bytes = fakes::read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  {
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    REQUIRE(stream.good());
  }
  const std::array<timespec, 2> times{before.st_atim, before.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0);
}

}  // namespace

TEST_CASE("a_file_that_was_seen_gives_the_same_candidate_without_being_read") {
  fakes::TempFolder plugins, state;
  const fs::path path = plugins.add("device_code");
  anyattn::inspect::LibrarySearch libraries({.library_path = {}, .loaded = {}});
  SeenFiles first((state.path() / "seen").string(), "this build", 0);
  const Found cold = discover(plugins, first, &libraries);
  CHECK(first.save().empty());
  SeenFiles second((state.path() / "seen").string(), "this build", 0);
  REQUIRE(second.find(path.string(), ANYATTN_ABI_MAJOR));
  const Found warm = discover(plugins, second, &libraries);

  REQUIRE(cold.candidates.size() == 1);
  REQUIRE(warm.candidates.size() == 1);
  CHECK(warm.candidates[0].content == cold.candidates[0].content);
  CHECK(warm.candidates[0].device_code == std::set<std::string>{"sm_80", "compute_86"});
  CHECK(warm.candidates[0].libraries == cold.candidates[0].libraries);
  CHECK_FALSE(warm.candidates[0].libraries.empty());
  CHECK_FALSE(second.find(path.string(), ANYATTN_ABI_MAJOR + 1));  // a host of another ABI looks for itself
}

TEST_CASE("whatever_changes_a_file_makes_it_read_again") {
  fakes::TempFolder plugins, state;
  const fs::path path = plugins.add("good");
  fakes::write_file(path, fakes::read_file(path) + "padding");
  SeenFiles seen(state.path().string(), "this build", 0);
  const std::string before = discover(plugins, seen).candidates.at(0).content;
  change_in_place(path);
  const std::string after = discover(plugins, seen).candidates.at(0).content;
  CHECK(before != after);
  CHECK(after == anyattn::discovery::read_content(path.string()).hash);
  // Another file renamed over it.
  fs::copy_file(fakes::file("other"), plugins.path() / "new");
  fs::rename(plugins.path() / "new", path);
  fs::remove(plugins.path() / "anyattn_good.yaml");
  CHECK(discover(plugins, seen).candidates.at(0).content == anyattn::discovery::read_content(path.string()).hash);
}

TEST_CASE("a_library_that_a_seen_file_needs_is_looked_for_each_time") {
  fakes::TempFolder plugins, state;
  plugins.add("missing_library");
  fs::create_directories(plugins.path() / "lib");
  const fs::path library = plugins.path() / "lib/libfake_absent.so.0";
  fs::copy_file(fakes::folder("link_time_only") / "libfake_absent.so.0", library);
  SeenFiles seen(state.path().string(), "this build", 0);
  const auto look = [&] {
    anyattn::inspect::LibrarySearch libraries({.library_path = {(plugins.path() / "lib").string()}, .loaded = {}});
    return discover(plugins, seen, &libraries);
  };
  CHECK(look().candidates.size() == 1);
  fs::remove(library);
  const Found found = look();
  REQUIRE(found.skips.size() == 1);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]), {"needs libfake_absent.so.0, which is not found"});
}

TEST_CASE("what_was_just_written_is_not_kept_and_above_trust_level_none_nothing_is") {
  fakes::TempFolder plugins, state;
  const fs::path path = plugins.add("good");
  SeenFiles cautious((state.path() / "a").string(), "this build");
  CHECK(discover(plugins, cautious).candidates.size() == 1);
  CHECK_FALSE(cautious.find(path.string(), ANYATTN_ABI_MAJOR));
  SeenFiles strict((state.path() / "b").string(), "this build", 0);
  discover(plugins, strict, nullptr, anyattn::config::TrustLevel::kHash);
  CHECK_FALSE(strict.find(path.string(), ANYATTN_ABI_MAJOR));
  CHECK(strict.save().empty());
  CHECK_FALSE(fs::exists(state.path() / "b"));
}

// Not by the record: by the bytes.
TEST_CASE("a_record_that_lies_about_a_hash_opens_nothing") {
  fakes::TempFolder plugins, state;
  const fs::path path = plugins.add("collision_b");
  SeenFiles seen(state.path().string(), "this build", 0);
  discover(plugins, seen);
  auto lie = *seen.find(path.string(), ANYATTN_ABI_MAJOR);
  lie.content = std::string(64, 'a');
  seen.keep(std::make_shared<const anyattn::discovery::SeenFile>(lie));
  const Found found = discover(plugins, seen);
  REQUIRE(found.candidates.size() == 1);
  fakes::TestHost host;
  const auto opened = anyattn::loader::Loader(host.services()).open(found.candidates[0]);
  REQUIRE(opened.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*opened.failure), {"changed after it was listed"});
  CHECK_FALSE(fakes::is_mapped(path));
}

TEST_CASE("damaged_records_and_folders_of_others_are_not_believed") {
  fakes::TempFolder plugins, state;
  const fs::path path = plugins.add("good");
  const fs::path folder = state.path() / "seen";
  SeenFiles first(folder.string(), "this build", 0);
  discover(plugins, first);
  CHECK(first.save().empty());
  CHECK(fs::status(folder).permissions() == fs::perms::owner_all);
  const std::string whole = fakes::read_file(folder / "seen_files");
  const auto knows = [&] {
    return SeenFiles(folder.string(), "this build", 0).find(path.string(), ANYATTN_ABI_MAJOR) != nullptr;
  };
  CHECK(knows());
  CHECK_FALSE(SeenFiles(folder.string(), "another build", 0).find(path.string(), ANYATTN_ABI_MAJOR));
  for (size_t size = 0; size < whole.size(); size += 53) {
    fakes::write_file(folder / "seen_files", whole.substr(0, size));
    CHECK_FALSE(knows());
  }
  for (size_t at = 0; at < whole.size(); at += 41) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    fakes::write_file(folder / "seen_files", damaged);
    CHECK_FALSE(knows());
  }
  fakes::write_file(folder / "seen_files", whole);
  fs::permissions(folder, fs::perms::all);
  CHECK_FALSE(knows());
  fs::permissions(folder, fs::perms::owner_all);
  CHECK(knows());
}
