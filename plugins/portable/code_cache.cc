// SPDX-License-Identifier: Apache-2.0
#include "code_cache.h"

#include <pwd.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "anyattn/error.hpp"

namespace anyattn::portable {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kLongestWrite{10};
constexpr char kMagic[8] = {'A', 'A', 'P', 'C', 'O', 'D', 'E', '1'};

struct Header {
  char magic[8];
  uint64_t key[2], code[2];  // digests
  uint64_t bytes;
};

// Two FNV-1a sums over the same bytes from different starts: 128 bits against accidents; the folder is private.
void digest(std::string_view bytes, uint64_t (&into)[2]) {
  into[0] = UINT64_C(0xcbf29ce484222325);
  into[1] = UINT64_C(0x84222325cbf29ce4);
  for (const char byte : bytes) {
    into[0] = (into[0] ^ static_cast<unsigned char>(byte)) * UINT64_C(0x100000001b3);
    into[1] = (into[1] ^ static_cast<unsigned char>(byte)) * UINT64_C(0x10000000233);
  }
}

std::string file_of(const std::string& folder, const std::string& key) {
  uint64_t sum[2];
  digest(key, sum);
  char name[48];
  std::snprintf(name, sizeof name, "/%016llx%016llx.code", static_cast<unsigned long long>(sum[0]),
                static_cast<unsigned long long>(sum[1]));
  return folder + name;
}

bool only_ours(const std::string& path) {  // or root's
  struct stat status;
  return lstat(path.c_str(), &status) == 0 && !S_ISLNK(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// HASH.code, or HASH.code.PID.N while it is written.
bool is_kept(const fs::path& name) { return name.extension() == ".code"; }
bool is_being_written(const fs::path& name) { return is_kept(name.stem().stem()); }

// Removes what killed writers left, then, where `more` bytes would go past the bound, the files longest unused until half is left.
void make_room(const std::string& folder, uint64_t more, uint64_t max_bytes) {
  struct File {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::error_code error;
  std::vector<File> files;
  uint64_t bytes = more;
  const auto now = fs::file_time_type::clock::now();
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool temporary = is_being_written(entry.path().filename());
    if (!temporary && !is_kept(entry.path())) continue;
    std::error_code gone;
    File file{entry.last_write_time(gone), 0, entry.path()};
    if (!gone) file.bytes = entry.file_size(gone);
    if (gone || (temporary && now - file.used > kLongestWrite && fs::remove(file.path, gone))) continue;
    bytes += file.bytes;
    if (!temporary) files.push_back(std::move(file));
  }
  if (bytes <= max_bytes) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (bytes <= max_bytes / 2) return;
    if (fs::remove(file.path, error)) bytes -= file.bytes;
  }
}

}  // namespace

bool CodeCache::has_more_rights() { return getauxval(AT_SECURE) != 0; }

CodeCache::CodeCache(std::string_view option, uint64_t max_bytes, bool more_rights) : max_bytes_(max_bytes) {
  if (option == "off" || more_rights) return;
  if (option == "auto") {
    const passwd* user = getpwuid(geteuid());
    if (!user || !user->pw_dir || user->pw_dir[0] != '/') return;
    folder_ = std::string(user->pw_dir) + "/.cache/anyattn/kernels";
  } else {
    folder_ = option;
  }
}

bool CodeCache::has(const std::string& key) const {
  return !folder_.empty() && only_ours(folder_) && only_ours(file_of(folder_, key));
}

std::string CodeCache::find(const std::string& key) const {
  if (!has(key)) return {};
  const std::string path = file_of(folder_, key);
  std::ifstream in(path, std::ios::binary);
  std::error_code error;
  Header header{};
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) || header.bytes > fs::file_size(path, error)) return {};
  std::string code(header.bytes, '\0');
  if (!in.read(code.data(), static_cast<std::streamsize>(code.size())) || in.peek() != EOF) return {};
  uint64_t key_sum[2], code_sum[2];
  digest(key, key_sum);
  digest(code, code_sum);
  const bool whole = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
                     std::memcmp(header.key, key_sum, sizeof key_sum) == 0 &&
                     std::memcmp(header.code, code_sum, sizeof code_sum) == 0;
  if (whole && max_bytes_ > 0) fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return whole ? code : std::string{};
}

void CodeCache::keep(const std::string& key, const std::string& code) const {
  const uint64_t bytes = sizeof(Header) + code.size();
  if (folder_.empty() || bytes > max_bytes_) return;
  std::error_code error;
  fs::create_directories(fs::path(folder_).parent_path(), error);
  if (mkdir(folder_.c_str(), 0700) != 0 && !only_ours(folder_)) return;
  make_room(folder_, bytes, max_bytes_);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  digest(key, header.key);
  digest(code, header.code);
  header.bytes = code.size();
  static std::atomic<unsigned> count{0};
  const std::string path = file_of(folder_, key);
  const std::string beside = text(path, ".", getpid(), ".", count.fetch_add(1));
  std::ofstream out(beside, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.write(code.data(), static_cast<std::streamsize>(code.size()));
  out.close();
  if (out && chmod(beside.c_str(), 0600) == 0) fs::rename(beside, path, error);
  if (!out || error) fs::remove(beside, error);
}

}  // namespace anyattn::portable
