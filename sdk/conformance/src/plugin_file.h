// SPDX-License-Identifier: Apache-2.0
// Opens a plugin file and reads its tables through their struct_size. Included by the runner. No trust, no discovery: the
// file is one the user named.
#ifndef ANYATTN_CONFORMANCE_PLUGIN_FILE_H
#define ANYATTN_CONFORMANCE_PLUGIN_FILE_H

#include <string>
#include <vector>

#include "anyattn/plugin.h"
#include "host.h"

namespace anyattn::conformance {

// The library stays open: plugins are never unloaded.
struct PluginFile {
  std::string path;
  anyattn_plugin plugin{};
  std::vector<anyattn_backend> backends;  // absent slots are null
};

// Throws Failure where the file is no plugin of this interface or its tables break it.
PluginFile open_plugin(const std::string& path, const Host& host);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_PLUGIN_FILE_H
