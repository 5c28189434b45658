// SPDX-License-Identifier: Apache-2.0
// What a process is like before and after a plugin was loaded into it. Included by the probe program only.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace anyattn::helper {

struct ProcessState {
  size_t num_threads = 0;
  std::string folder;
  std::string locale;
  uint32_t float_mode = 0;               // rounding, flush to zero, unmasked exceptions
  std::array<uintptr_t, 65> handlers{};  // by signal number
  std::set<std::string> descriptors;     // what they point to
  std::vector<std::string> environment;
};

ProcessState process_state();

// What changed, a sentence part each that continues "loading it ...": "starts 2 threads".
std::vector<std::string> changes(const ProcessState& before, const ProcessState& after);

}  // namespace anyattn::helper
