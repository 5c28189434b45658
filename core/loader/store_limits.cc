// SPDX-License-Identifier: Apache-2.0
#include "loader/store_limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "trust/private_folder.h"

namespace anyattn::loader {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGone = ".gone_";

// By folder. Never closed: an opened plugin stays for the life of the process, and so does its lock.
struct Held {
  std::mutex mutex;
  std::map<std::string, int> descriptors;
};

Held& held() {
  static Held* const instance = new Held;
  return *instance;
}

int open_folder(const std::string& folder) { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

// Was the folder of this descriptor removed, or another put in its place?
bool is_still(const std::string& folder, int descriptor) {
  struct stat by_path{};
  struct stat by_descriptor{};
  return ::lstat(folder.c_str(), &by_path) == 0 && ::fstat(descriptor, &by_descriptor) == 0 &&
         by_path.st_ino == by_descriptor.st_ino && by_path.st_dev == by_descriptor.st_dev;
}

struct Copy {
  fs::file_time_type used;
  fs::path folder;
  uint64_t bytes = 0;
};

uint64_t bytes_below(const fs::path& folder) {
  uint64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error); !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code gone;
    const uint64_t size = fs::is_regular_file(entry->symlink_status(gone)) ? entry->file_size(gone) : 0;
    if (!gone) sum += size;
  }
  return sum;
}

// A holder has the lock shared; whoever gets it alone is the only one who knows the folder.
bool remove_unheld(const fs::path& folder) {
  const int descriptor = open_folder(folder.string());
  if (descriptor < 0) return false;
  bool removed = false;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_still(folder.string(), descriptor)) {
    std::error_code error;
    // Under another name first: nobody finds half of it.
    const fs::path doomed = folder.parent_path() / fmt::format("{}{}_{}", kGone, folder.filename().string(), ::getpid());
    fs::rename(folder, doomed, error);
    if (!error) fs::remove_all(doomed, error);
    removed = !error;
  }
  ::close(descriptor);
  return removed;
}

}  // namespace

std::string hold_copy(const std::string& folder) {
  Held& all = held();
  const std::lock_guard lock(all.mutex);
  // Pruned between making and locking it: made again. A pruner holds its lock for a moment only, so waiting is safe.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto known = all.descriptors.find(folder);
    if (known != all.descriptors.end()) {
      if (is_still(folder, known->second)) {
        ::futimens(known->second, nullptr);
        return {};
      }
      all.descriptors.erase(known);  // somebody removed it by hand; what is mapped stays mapped
    }
    if (const std::string obstacle = trust::make_private_folder(folder); !obstacle.empty()) return obstacle;
    const int descriptor = open_folder(folder);
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_SH) != 0 || !is_still(folder, descriptor)) {
      ::close(descriptor);
      continue;
    }
    ::futimens(descriptor, nullptr);
    all.descriptors.emplace(folder, descriptor);
    return {};
  }
  return fmt::format("{} is taken away by another process again and again", folder);
}

void prune_store(const std::string& store, const StoreLimits& limits) {
  std::vector<Copy> copies;
  std::error_code error;
  for (fs::directory_iterator entry(store, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;  // another process prunes too
    const fs::file_time_type used = fs::last_write_time(entry->path(), gone);
    if (gone || !fs::is_directory(entry->symlink_status(gone))) continue;
    if (entry->path().filename().string().starts_with(kGone)) {  // of a process that ended while it removed it
      fs::remove_all(entry->path(), gone);
      continue;
    }
    copies.push_back({used, entry->path(), bytes_below(entry->path())});
  }
  std::ranges::sort(copies,
                    [](const Copy& a, const Copy& b) { return std::tie(a.used, a.folder) > std::tie(b.used, b.folder); });
  size_t contents = 0;
  uint64_t bytes = 0;
  for (const Copy& copy : copies) {
    const bool fits = contents < limits.contents && bytes + copy.bytes <= limits.bytes;
    if (!fits && remove_unheld(copy.folder)) continue;
    ++contents;
    bytes += copy.bytes;
  }
}

}  // namespace anyattn::loader
