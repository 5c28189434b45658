// SPDX-License-Identifier: Apache-2.0
// Two OpenMP runtimes in one process keep two pools of threads and may crash or compute wrongly: found by the names of libraries.
// Included by discovery. A runtime linked statically is not seen.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/finding.h"
#include "inspect/libraries.h"

namespace anyattn::inspect {

// libgomp.so.1, libomp.so.5, libiomp5.so, and as wheels rename them: libgomp-a34b3233.so.1.
bool is_openmp_runtime(std::string_view library_name);

// One process's OpenMP runtime, once somebody has brought it.
class OpenMpRuntime {
 public:
  // `loaded`: what the process holds already, name -> path.
  explicit OpenMpRuntime(const std::map<std::string, std::string>& loaded);
  // Another runtime among `libraries` than the one that is known.
  std::optional<Finding> conflict(const std::vector<Library>& libraries) const;
  // Knows the first one of `libraries`, which the file at `plugin` needs, from here on; or no longer.
  void take(const std::vector<Library>& libraries, const std::string& plugin);
  void forget(const std::string& plugin);
  const std::string& who() const { return who_; }  // brings it: a plugin's path

 private:
  std::string path_, who_;
};

}  // namespace anyattn::inspect
