// SPDX-License-Identifier: Apache-2.0
// Any bytes as a selection lock of `anyattn lock`.
#include <algorithm>

#include "config/lock.h"
#include "security/read_yaml_text.h"

namespace anyattn::fuzzing {

void run_lock(const uint8_t* data, size_t size) {
  const std::string_view text = text_of_bytes(data, size);
  expect_answer([&] {
    const config::Lock lock = config::parse_lock(text, kFile);
    for (const auto& [problem, entry] : lock.entries) {
      require(problem == entry.problem && problem.size() == 64 && entry.reasons.size() == 64, "digests have 64 digits");
      require(!entry.chosen.empty() && !entry.plugins.empty(), "a selection names backends and plugins");
      require(std::ranges::none_of(entry.chosen, [](char c) { return c >= 'a' && c <= 'z'; }),
              "names of backends are in capitals");
      require(std::ranges::count(entry.chosen, ',') == std::ranges::count(entry.plugins, ','), "each backend has its plugin");
    }
  });
}

}  // namespace anyattn::fuzzing
