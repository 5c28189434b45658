// SPDX-License-Identifier: Apache-2.0
#include "api/library_path.h"

#include <dlfcn.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace anyattn::api {
namespace {

namespace fs = std::filesystem;

// The folder of the file this code was loaded from: libanyattn.so, or the program it is linked into.
fs::path own_folder() {
  std::error_code failed;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname) {
    // A program is named as it was called, which may be a bare word.
    const fs::path named = info.dli_fname;
    const fs::path path = fs::canonical(named.has_parent_path() ? named : fs::path("/proc/self/exe"), failed);
    if (!failed) return path.parent_path();
  }
  const fs::path path = fs::canonical("/proc/self/exe", failed);
  return failed ? fs::path("/") : path.parent_path();
}

bool lies_in(const fs::path& folder, const fs::path& tree) {
  const fs::path inside = folder.lexically_relative(tree);
  return !inside.empty() && *inside.begin() != "..";
}

// The build tree, where the running code lies there; else empty.
fs::path build_tree(const fs::path& folder) {
  std::error_code failed;
  const fs::path build = fs::canonical(ANYATTN_BUILD_DIR, failed);
  return !failed && lies_in(folder, build) ? build : fs::path();
}

}  // namespace

std::string installed_file(const std::string& name) {
  std::error_code failed;
  const fs::path folder = own_folder();
  const fs::path beside = (folder / ANYATTN_DATA_FROM_LIBRARY / name).lexically_normal();
  if (fs::exists(beside, failed)) return beside.string();
  const fs::path build = build_tree(folder);
  if (!build.empty()) return (build / "config" / name).string();
  const fs::path installed = fs::path(ANYATTN_INSTALLED_DATA) / name;
  return (fs::exists(installed, failed) ? installed : beside).string();
}

std::string probe_program() {
  std::error_code failed;
  const fs::path folder = own_folder();
  const fs::path beside = (folder / ANYATTN_LIBEXEC_FROM_LIBRARY / "anyattn-probe").lexically_normal();
  if (fs::exists(beside, failed)) return beside.string();
  const fs::path build = build_tree(folder);
  if (!build.empty()) return (build / "bin" / "anyattn-probe").string();
  const fs::path installed = fs::path(ANYATTN_INSTALLED_LIBEXEC) / "anyattn-probe";
  return (fs::exists(installed, failed) ? installed : beside).string();
}

namespace {

// ~/.cache/anyattn/NAME by the password file, or NAME in the build tree; empty where this user has no home.
std::string user_folder(const char* name) {
  const fs::path build = build_tree(own_folder());
  if (!build.empty()) return (build / name).string();
  std::array<char, 4096> space{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, space.data(), space.size(), &found) != 0 || !found) return {};
  const fs::path home = found->pw_dir;
  return home.is_absolute() ? (home / ".cache/anyattn" / name).string() : std::string();
}

}  // namespace

std::string verdict_folder() { return user_folder("verdicts"); }
std::string copy_folder() { return user_folder("copies"); }

}  // namespace anyattn::api
