// SPDX-License-Identifier: Apache-2.0
#include "loader/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "discovery/content.h"

namespace anyattn::loader {
namespace {

namespace fs = std::filesystem;
using discovery::Stage;

[[noreturn]] void refuse(Stage stage, std::string reason, std::string remedy) {
  throw Refusal{stage, ANYATTN_NOT_FOUND, std::move(reason), std::move(remedy)};
}

[[noreturn]] void refuse_store(const std::string& what, int error) {
  refuse(Stage::kTrust, fmt::format("no private copy can be made: {}: {}", what, std::generic_category().message(error)),
         "give this user room and the right to write there");
}

// mode 0700; a folder of somebody else, or one that others may write to, is no private place.
void make_private(const std::string& folder) {
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse_store(folder, errno);
  struct stat facts{};
  if (::lstat(folder.c_str(), &facts) != 0) refuse_store(folder, errno);
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    refuse(Stage::kTrust, fmt::format("no private copy can be made: {} is not this user's alone", folder),
           fmt::format("remove {}, or make it this user's with mode 0700", folder));
}

// The bytes of a file, which must be those that were checked.
std::vector<std::byte> read_checked(const std::string& path, const std::string& hash) {
  discovery::FileContent content = discovery::read_content(path);
  if (!content.error.empty())
    refuse(Stage::kOpen, fmt::format("the file {} {}", path, content.error), "check what lies at this path");
  if (content.hash != hash)
    refuse(Stage::kOpen, fmt::format("the file {} changed after it was checked", path),
           "register it again, or make a new runtime");
  return std::move(content.bytes);
}

// Written whole under another name, then renamed: no reader ever sees a part.
void write_whole(const std::string& target, const std::vector<std::byte>& bytes) {
  std::string scratch = target + ".XXXXXX";
  const int file = ::mkstemp(scratch.data());
  if (file < 0) refuse_store(target, errno);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) break;
    done += static_cast<size_t>(wrote);
  }
  int error = done == bytes.size() ? 0 : errno;
  if (error == 0 && ::fchmod(file, 0500) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(scratch.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(scratch.c_str());
  refuse_store(target, error);
}

void put_file(const std::string& target, const std::string& source, const std::string& hash) {
  std::error_code error;
  if (fs::exists(target, error)) {
    const discovery::FileContent there = discovery::read_content(target);
    if (there.error.empty() && there.hash == hash) return;
  }
  write_whole(target, read_checked(source, hash));
}

}  // namespace

std::string put_copy(const std::string& store, const discovery::Candidate& candidate) {
  std::string all = candidate.content;
  for (const discovery::Companion& companion : candidate.companions) all += "\n" + companion.hash + " " + companion.name;
  const std::string name = candidate.companions.empty() ? candidate.content : discovery::hash_text(all);
  make_private(store);
  const fs::path folder = fs::path(store) / name;
  make_private(folder.string());
  for (const discovery::Companion& companion : candidate.companions) {
    const fs::path target = folder / companion.name;
    if (target.parent_path() != folder) make_private(target.parent_path().string());
    put_file(target.string(), companion.path, companion.hash);
  }
  const std::string copy = (folder / fs::path(candidate.path).filename()).string();
  put_file(copy, candidate.path, candidate.content);
  return copy;
}

}  // namespace anyattn::loader
