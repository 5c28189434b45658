// SPDX-License-Identifier: Apache-2.0
#include "trust/private_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace anyattn::trust {
namespace {

std::string failed(const std::string& path, int error) {
  return fmt::format("{}: {}", path, std::generic_category().message(error));
}

}  // namespace

bool is_private_folder(const std::string& folder) {
  struct stat facts{};
  if (::lstat(folder.c_str(), &facts) != 0) return false;
  return S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string make_private_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failed(folder, errno);
  struct stat facts{};
  if (::lstat(folder.c_str(), &facts) != 0) return failed(folder, errno);
  return is_private_folder(folder) ? std::string() : fmt::format("{} is not this user's alone", folder);
}

std::string write_private_file(const std::string& path, std::span<const std::byte> bytes, mode_t mode) {
  std::string scratch = path + ".XXXXXX";
  const int file = ::mkstemp(scratch.data());
  if (file < 0) return failed(path, errno);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) break;
    done += static_cast<size_t>(wrote);
  }
  int error = done == bytes.size() ? 0 : errno;
  if (error == 0 && ::fchmod(file, mode) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(scratch.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(scratch.c_str());
  return failed(path, error);
}

}  // namespace anyattn::trust
