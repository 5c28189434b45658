// SPDX-License-Identifier: Apache-2.0
// The one rule of every YAML reader under attack. Included by the harnesses of configuration files.
#pragma once

#include <string_view>

#include "config/config.h"
#include "security/harnesses.h"

namespace anyattn::fuzzing {

inline constexpr const char* kFile = "f.yaml";

// Runs read() and wants what it throws to be an error that names the file.
template <class Read>
void expect_answer(Read&& read) {
  try {
    read();
  } catch (const config::ConfigError& error) {
    require(std::string_view(error.what()).starts_with(kFile), "an error names its file");
  }
}

inline std::string_view text_of_bytes(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace anyattn::fuzzing
