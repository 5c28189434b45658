// SPDX-License-Identifier: Apache-2.0
#include "probe/cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

namespace anyattn::probe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".json";
constexpr size_t kMaxBytes = 64 << 10;

std::optional<Verdict> read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text(kMaxBytes, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  return from_text(text);
}

}  // namespace

bool VerdictCache::is_ours() const {
  struct stat facts{};
  if (folder_.empty() || ::stat(folder_.c_str(), &facts) != 0) return false;
  return S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<Verdict> VerdictCache::find(const std::string& key) const {
  return is_ours() ? read(fs::path(folder_) / (key + kSuffix)) : std::nullopt;
}

std::string VerdictCache::keep(const std::string& key, const Verdict& verdict) const {
  if (folder_.empty()) return "there is no folder for it";
  std::error_code error;
  if (!fs::exists(folder_, error)) {
    fs::create_directories(fs::path(folder_).parent_path(), error);
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      return fmt::format("{}: {}", folder_, std::generic_category().message(errno));
  }
  if (!is_ours()) return fmt::format("{} is not this user's alone (wanted: a folder of this user, mode 0700)", folder_);
  std::string scratch = (fs::path(folder_) / ".new_XXXXXX").string();
  const int descriptor = ::mkstemp(scratch.data());
  if (descriptor < 0) return fmt::format("{}: {}", folder_, std::generic_category().message(errno));
  const std::string text = to_text(verdict) + "\n";
  const ssize_t done = ::write(descriptor, text.data(), text.size());
  const bool closed = ::close(descriptor) == 0;
  const std::string target = (fs::path(folder_) / (key + kSuffix)).string();
  if (done == static_cast<ssize_t>(text.size()) && closed && ::rename(scratch.c_str(), target.c_str()) == 0) {
    drop_oldest();
    return {};
  }
  const int reason = errno;
  ::unlink(scratch.c_str());
  return fmt::format("{}: {}", target, std::generic_category().message(reason));
}

void VerdictCache::drop_oldest() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;  // another process may drop the same one
    const fs::file_time_type time = fs::last_write_time(entry->path(), gone);
    if (!gone && entry->path().extension() == kSuffix) files.emplace_back(time, entry->path());
  }
  if (files.size() <= kMostKept) return;
  std::ranges::sort(files);
  for (size_t i = 0; i + kMostKept < files.size(); ++i) ::unlink(files[i].second.c_str());
}

std::vector<VerdictCache::Kept> VerdictCache::all() const {
  std::vector<Kept> found;
  if (!is_ours()) return found;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != kSuffix) continue;
    if (auto verdict = read(path)) found.push_back({path.stem().string(), std::move(*verdict)});
  }
  std::ranges::sort(found, [](const Kept& a, const Kept& b) {
    return std::tie(a.verdict.path, a.verdict.when, a.key) < std::tie(b.verdict.path, b.verdict.when, b.key);
  });
  return found;
}

void VerdictCache::forget(const std::string& key) const {
  if (is_ours()) ::unlink((fs::path(folder_) / (key + kSuffix)).c_str());
}

}  // namespace anyattn::probe
