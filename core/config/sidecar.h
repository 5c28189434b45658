// SPDX-License-Identifier: Apache-2.0
// The sidecar anyattn_<name>.yaml beside a plugin: what it says of itself, so that listing opens nothing.
// Included by discovery and the loader. Does not look at the plugin file itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace anyattn::config {

struct Sidecar {
  struct Backend {
    std::string name;
    uint32_t device_kind = 0;  // ANYATTN_DEVICE_*
  };

  std::string path;  // as given to read_sidecar
  std::string id;
  std::string vendor;
  std::string version;  // text: 1.10 is not 1.1
  std::string license;
  uint32_t abi_min = 0;  // ANYATTN_ABI_VERSION words, min <= max
  uint32_t abi_max = 0;
  std::vector<Backend> backends;           // unique by (name, device kind)
  std::vector<uint32_t> providers;         // ANYATTN_DEVICE_*
  uint64_t needs_cpu = 0;                  // ANYATTN_CPU_* bits, all needed
  std::vector<std::string> architectures;  // of device code, as the vendor writes them: sm_80, gfx942
};

// Throws ConfigError with file, line, column and key. A file that is not there is an error too: ask the file system first.
Sidecar read_sidecar(const std::string& path);
Sidecar parse_sidecar(std::string_view text, const std::string& path);

}  // namespace anyattn::config
