// SPDX-License-Identifier: Apache-2.0
#include "bundle/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "common/failure.h"

namespace anyattn::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 4096;
constexpr uint64_t kMaxBytes = uint64_t{16} << 30;

struct Freed {
  void operator()(archive* a) const { archive_free(a); }
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};
using Archive = std::unique_ptr<archive, Freed>;

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Failure(kExitFailed, fmt::format("{}: {}; nothing was installed", file, why));
}

std::string error_of(archive* a) {
  const char* text = archive_error_string(a);
  return text ? text : "the archive cannot be read";
}

// Nothing in it could be read.
[[noreturn]] void refuse_whole(const std::string& file, archive* from) {
  throw Failure(kExitFailed,
                fmt::format("{}: it is no .tar.zst of a bundle ({}); 'anyattn bundle build' makes one", file, error_of(from)));
}

void write_entry(archive* to, const fs::path& path, const std::string& name) {
  const std::unique_ptr<archive_entry, Freed> entry(archive_entry_new());
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(fs::file_size(path)));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_mtime(entry.get(), 0, 0);
  if (archive_write_header(to, entry.get()) != ARCHIVE_OK)
    throw Failure(kExitFailed, fmt::format("{}: {}", name, error_of(to)));
  std::ifstream in(path, std::ios::binary);
  std::array<char, 1 << 16> part{};
  while (in) {
    in.read(part.data(), part.size());
    if (in.gcount() > 0 && archive_write_data(to, part.data(), static_cast<size_t>(in.gcount())) < 0)
      throw Failure(kExitFailed, fmt::format("{}: {}", name, error_of(to)));
  }
}

// Made by us in folders made by us; nothing is followed and nothing overwritten.
void read_entry(archive* from, const fs::path& path, const std::string& file, const std::string& name, uint64_t& total) {
  std::error_code error;  // a file may stand where a folder is wanted
  fs::create_directories(path.parent_path(), error);
  if (error) refuse(file, fmt::format("{}: {}", name, error.message()));
  const int out = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (out < 0) refuse(file, fmt::format("{}: {}", name, std::strerror(errno)));
  const std::unique_ptr<const int, void (*)(const int*)> closer(&out, [](const int* descriptor) { ::close(*descriptor); });
  std::array<char, 1 << 16> part{};
  while (true) {
    const la_ssize_t got = archive_read_data(from, part.data(), part.size());
    if (got < 0) refuse(file, fmt::format("{}: {}", name, error_of(from)));
    if (got == 0) return;
    total += static_cast<uint64_t>(got);
    if (total > kMaxBytes) refuse(file, fmt::format("it unpacks to more than {} bytes", kMaxBytes));
    for (la_ssize_t done = 0; done < got;) {
      const ssize_t wrote = ::write(out, part.data() + done, static_cast<size_t>(got - done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) refuse(file, fmt::format("{}: {}", name, std::strerror(errno)));
      done += wrote;
    }
  }
}

}  // namespace

bool is_plain_name(const std::string& name) {
  if (name.empty() || name.size() > 200 || std::ranges::count(name, '/') > 8) return false;
  bool starts_part = true;
  for (const char c : name) {
    const bool is_word =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '+' || c == '-';
    if (c == '/' ? starts_part : !is_word && (c != '.' || starts_part)) return false;
    starts_part = c == '/';
  }
  return !starts_part;
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(folder).string());
  std::ranges::sort(names);
  return names;
}

void pack(const std::string& folder, const std::string& file) {
  const std::string scratch = file + ".new";
  // Half an archive is nobody's; once renamed there is nothing left to remove.
  const std::unique_ptr<const std::string, void (*)(const std::string*)> remover(&scratch, [](const std::string* path) {
    std::error_code ignored;
    fs::remove(*path, ignored);
  });
  const Archive to(archive_write_new());
  archive_write_set_format_ustar(to.get());
  if (archive_write_add_filter_zstd(to.get()) != ARCHIVE_OK ||
      archive_write_open_filename(to.get(), scratch.c_str()) != ARCHIVE_OK)
    throw Failure(kExitFailed, fmt::format("{}: {}", file, error_of(to.get())));
  for (const std::string& name : files_below(folder)) write_entry(to.get(), fs::path(folder) / name, name);
  if (archive_write_close(to.get()) != ARCHIVE_OK) throw Failure(kExitFailed, fmt::format("{}: {}", file, error_of(to.get())));
  fs::rename(scratch, file);
}

void unpack(const std::string& file, const std::string& folder) {
  const Archive from(archive_read_new());
  archive_read_support_format_tar(from.get());
  archive_read_support_filter_zstd(from.get());
  if (archive_read_open_filename(from.get(), file.c_str(), 1 << 16) != ARCHIVE_OK) refuse_whole(file, from.get());
  std::set<std::string> seen;
  uint64_t total = 0;
  archive_entry* entry = nullptr;
  int status = ARCHIVE_OK;
  while ((status = archive_read_next_header(from.get(), &entry)) == ARCHIVE_OK) {
    const char* given = archive_entry_pathname(entry);
    const std::string name = given ? given : "";
    if (archive_entry_filetype(entry) == AE_IFDIR &&
        is_plain_name(name.ends_with('/') ? name.substr(0, name.size() - 1) : name))
      continue;
    if (!is_plain_name(name))
      refuse(file, fmt::format("it holds a file called '{}'; allowed: relative names of letters, digits and ._+-", name));
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
      refuse(file, fmt::format("{} is a link or no regular file", name));
    if (!seen.insert(name).second) refuse(file, fmt::format("it holds {} twice", name));
    if (seen.size() > kMaxFiles) refuse(file, fmt::format("it holds more than {} files", kMaxFiles));
    // What it says of itself first: nothing is written for a size that is refused.
    if (const la_int64_t size = archive_entry_size(entry); size > 0 && static_cast<uint64_t>(size) > kMaxBytes - total)
      refuse(file, fmt::format("it unpacks to more than {} bytes", kMaxBytes));
    read_entry(from.get(), fs::path(folder) / name, file, name, total);
  }
  if (status != ARCHIVE_EOF && seen.empty()) refuse_whole(file, from.get());
  if (status != ARCHIVE_EOF) refuse(file, error_of(from.get()));
  if (seen.empty()) refuse(file, "it holds no file");
}

}  // namespace anyattn::tools
