// SPDX-License-Identifier: Apache-2.0
// A configuration with changes of a verb's own, written to a file that goes with this object. Included by verbs that want another
// option or provider than the user's file names. What is not changed means what it meant there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "anyattn/runtime.hpp"
#include "common/options.h"

namespace anyattn::tools {

class ChangedConfig {
 public:
  // What `runtime` was opened with; write() gives `options` with another file.
  ChangedConfig(const CommonOptions& options, const Runtime& runtime);
  ~ChangedConfig();
  ChangedConfig(const ChangedConfig&) = delete;
  ChangedConfig& operator=(const ChangedConfig&) = delete;

  // A value by its path: "selection.lock", "null"; `yaml` as it stands in a file.
  void set(const std::string& path, const std::string& yaml);
  // A key of plugins.entries of this plugin, which gets an entry where it has none: "options.cache", a text; "file".
  void set_entry(const std::string& plugin_id, const std::string& key, const std::string& text);

  // A plugin file, relative to the current folder, pinned under the id in its sidecar. Before plugins that are searched for, so
  // its device provider is the one of its kind. Throws Failure where the file or its sidecar is not there.
  void add_plugin(const std::string& file);

  // The options with the file in place of the user's. Throws Failure where no file can be written.
  CommonOptions write();

 private:
  CommonOptions options_;
  std::string folder_;
  std::vector<std::pair<std::string, std::string>> values_;  // path, YAML; in the order of the file
};

}  // namespace anyattn::tools
