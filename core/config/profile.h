// SPDX-License-Identifier: Apache-2.0
// A profile as `anyattn tune` writes it: how long each backend took on one device, problem by problem, and of which plugins that
// is true. Included by the selector and the API. Judges nothing of it (selector/profile.h does).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace anyattn::config {

struct Profile {
  // What was measured on.
  struct Device {
    uint32_t kind = 0;  // ANYATTN_DEVICE_*
    std::string name;
    std::string architecture;
    uint32_t num_multiprocessors = 0;
    uint32_t driver_version = 0;
  };
  // One whose backends were measured.
  struct Plugin {
    std::string id;
    std::string version;
    std::string content;  // 64 hex digits
  };
  // Of one call, over the rounds: 0 < fastest <= median <= slowest.
  struct Times {
    double fastest_us = 0, median_us = 0, slowest_us = 0;
  };
  struct Shape {
    std::string text;                    // "decode 1 x 2048"
    std::map<std::string, Times> times;  // by backend name
  };
  struct Entry {
    std::vector<Shape> shapes;  // at least one
  };

  std::string file;
  std::string date;  // for people
  Device device;
  std::vector<Plugin> plugins;
  std::map<std::string, Entry> entries;  // by the digest of problem and device kind (selector/profile.h)
};

// Throw ConfigError with file, line, column and key; a file that cannot be read is an error too.
Profile read_profile(const std::string& path);
Profile parse_profile(std::string_view text, const std::string& path);

}  // namespace anyattn::config
