// SPDX-License-Identifier: Apache-2.0
// The files of sdk/new_plugin, built into the command so that it needs no folder beside it. Included by new_plugin.cc.
#pragma once

#include <string>
#include <vector>

namespace anyattn::tools {

struct ProjectFile {
  std::string name;  // as written into the new folder, @NAME@ and the like still in it
  std::string text;
};

const std::vector<ProjectFile>& project_files();

}  // namespace anyattn::tools
