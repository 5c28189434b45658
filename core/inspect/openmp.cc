// SPDX-License-Identifier: Apache-2.0
#include "inspect/openmp.h"

#include <fmt/format.h>

#include <array>

namespace anyattn::inspect {

bool is_openmp_runtime(std::string_view library_name) {
  constexpr std::array<std::string_view, 4> kStems{"libgomp", "libomp", "libomp5", "libiomp5"};
  const std::string_view stem = library_name.substr(0, library_name.find(".so"));
  for (const std::string_view known : kStems)
    if (stem == known || (stem.starts_with(known) && stem[known.size()] == '-')) return true;
  return false;
}

OpenMpRuntime::OpenMpRuntime(const std::map<std::string, std::string>& loaded) {
  for (const auto& [name, path] : loaded) {
    if (!is_openmp_runtime(name)) continue;
    path_ = path;
    who_ = "this process";
    return;
  }
}

void OpenMpRuntime::take(const std::vector<Library>& libraries, const std::string& plugin) {
  for (const Library& library : libraries) {
    if (!path_.empty() || !is_openmp_runtime(library.name)) continue;
    path_ = library.path;
    who_ = plugin;
  }
}

void OpenMpRuntime::forget(const std::string& plugin) {
  if (who_ != plugin) return;
  path_.clear();
  who_.clear();
}

std::optional<Finding> OpenMpRuntime::conflict(const std::vector<Library>& libraries) const {
  for (const Library& library : libraries) {
    if (path_.empty() || !is_openmp_runtime(library.name) || is_same_library(path_, library.path)) continue;
    return Finding{
        fmt::format(
            "needs the OpenMP runtime {}, but {} brings {}, and two of them in one process may crash or compute wrongly",
            library.path, who_, path_),
        "run on the host's threads (anyattn_host.parallel_for), or build both with one OpenMP runtime"};
  }
  return std::nullopt;
}

}  // namespace anyattn::inspect
