// SPDX-License-Identifier: Apache-2.0
// Any bytes as a profile of `anyattn tune`.
#include "config/profile.h"
#include "security/read_yaml_text.h"

namespace anyattn::fuzzing {

void run_profile(const uint8_t* data, size_t size) {
  const std::string_view text = text_of_bytes(data, size);
  expect_answer([&] {
    const config::Profile profile = config::parse_profile(text, kFile);
    for (const config::Profile::Plugin& plugin : profile.plugins)
      require(!plugin.id.empty() && plugin.content.size() == 64, "a plugin has an id and a hash");
    for (const auto& [problem, entry] : profile.entries) {
      require(problem.size() == 64 && !entry.shapes.empty(), "an entry has a digest and shapes");
      for (const config::Profile::Shape& shape : entry.shapes) {
        require(!shape.times.empty(), "a shape has times");
        for (const auto& [backend, times] : shape.times)
          require(times.fastest_us > 0 && times.fastest_us <= times.median_us && times.median_us <= times.slowest_us,
                  "times are above 0 and in order");
      }
    }
  });
}

}  // namespace anyattn::fuzzing
