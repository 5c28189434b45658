// SPDX-License-Identifier: Apache-2.0
#include "api/library_path.h"

#include <dlfcn.h>

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

}  // namespace

std::string installed_file(const std::string& name) {
  std::error_code failed;
  const fs::path folder = own_folder();
  const fs::path beside = (folder / ANYATTN_DATA_FROM_LIBRARY / name).lexically_normal();
  if (fs::exists(beside, failed)) return beside.string();
  const fs::path build = fs::canonical(ANYATTN_BUILD_DIR, failed);
  if (!failed && lies_in(folder, build)) return (build / "config" / name).string();
  const fs::path installed = fs::path(ANYATTN_INSTALLED_DATA) / name;
  return (fs::exists(installed, failed) ? installed : beside).string();
}

}  // namespace anyattn::api
