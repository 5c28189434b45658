// SPDX-License-Identifier: Apache-2.0
// Verbs for those who write, ship and install plugins. Included by main.cc, which lists them, and by the verbs' own files.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace anyattn::tools {

struct NewPluginOptions {
  std::string name;  // acme
  std::string folder;
  std::string id;  // empty: com.example.NAME
  std::string vendor = "Example";
};
int new_plugin(const NewPluginOptions& options);

// Each adds its verb with flags and help to the command, and returns what runs it.
std::function<int()> add_new_plugin(CLI::App& app);

}  // namespace anyattn::tools
