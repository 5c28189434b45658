// SPDX-License-Identifier: Apache-2.0
// anyattn tune: what it is asked, and its flags. Included by main.cc, which lists the verbs, and by the verb's own files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "verbs.h"

namespace CLI {
class App;
}

namespace anyattn::tools {

// Empty lists: what a profile has where nothing is asked.
struct TuneOptions {
  CommonOptions common;
  TargetOptions target;  // its backend is not read: every one that can is measured
  std::vector<std::string> models;
  std::string models_file;  // empty: the table installed with the library
  std::string out;          // the profile
  std::vector<uint32_t> contexts = {512, 4096};
  std::vector<uint32_t> prompts = {512};
  std::vector<uint32_t> batches = {1};
  uint32_t rounds = 9;
  double min_time_s = 0.02;  // a sample
  uint32_t cold_mib = 256;   // of caches, for each backend
};
int tune(const TuneOptions& options);

// Adds the verb with flags and help to the command, and returns what runs it.
std::function<int()> add_tune(CLI::App& app);

}  // namespace anyattn::tools
