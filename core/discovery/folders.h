// SPDX-License-Identifier: Apache-2.0
// Lists what looks like a plugin in the folders of plugins.search. Included by discovery only. Reads folders, no files.
#pragma once

#include <string>
#include <vector>

#include "discovery/discovery.h"

namespace anyattn::discovery {

struct Located {
  std::string path;                            // as found, absolute
  std::string origin;                          // for people
  const config::PluginEntry* entry = nullptr;  // plugins.entries names this file
};

// anyattn_*.so of each folder, then of its direct subfolders, sorted by name. A folder that cannot be read is a skip.
std::vector<Located> list_folders(const config::Config& config, std::vector<Skip>& skips);

}  // namespace anyattn::discovery
