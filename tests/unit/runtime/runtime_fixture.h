// SPDX-License-Identifier: Apache-2.0
// A runtime over fake plugins: writes a configuration into a folder of its own. Included by tests of the whole library.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "anyattn/runtime.hpp"
#include "fake_plugins/counters.h"

namespace fake {

// A configuration file with the plugins named: "noop" is the file anyattn_noop.so of the fakes. Gone with this object.
class ConfigFile {
 public:
  // plugins: {name, extra keys of its entry}; rest: further lines of the file.
  explicit ConfigFile(std::initializer_list<std::pair<std::string, std::string>> plugins, const std::string& rest = "") {
    static std::atomic<int> number{0};
    folder_ = std::filesystem::temp_directory_path() /
              ("anyattn_runtime_test_" + std::to_string(getpid()) + "_" + std::to_string(number++));
    std::filesystem::create_directories(folder_);
    std::ofstream file(path());
    file << "version: 1\nplugins:\n  search: []\n  entries:" << (plugins.size() == 0 ? " []\n" : "\n");
    for (const auto& [name, extra] : plugins) {
      file << "    - {id: org.anyattn.fake." << name << ", file: " << plugin_path(name) << extra << "}\n";
    }
    // Options hold addresses of this process, which are nothing in another.
    file << "probe: {enabled: false}\n" << rest;
  }
  ~ConfigFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  std::string path() const { return (folder_ / "test.yaml").string(); }
  static std::string plugin_path(const std::string& name) {
    return std::string(ANYATTN_BINARY_DIR) + "/tests/fake_plugins/" + name + "/anyattn_" + name + ".so";
  }

 private:
  std::filesystem::path folder_;
};

inline std::string counting(const FakeCounters& counters) {
  return ", options: {counters: \"" + counters.option_text() + "\"}";
}

inline anyattn::Runtime open_runtime(const ConfigFile& config, const std::string& backend = "") {
  anyattn::Runtime::Options options;
  options.config_path = config.path();
  options.backend = backend;
  options.log_level = "error";
  options.num_threads = 2;
  return anyattn::Runtime(options);
}

inline anyattn::Group::Options group_options(const anyattn_problem& problem, const std::string& label = "full") {
  anyattn::Group::Options options;
  options.problem = problem;
  options.limits = {ANYATTN_LIMITS_SIZE, 8, 64, 32, 256, 0};
  options.label = label;
  return options;
}

// 8 q heads, 2 kv heads, 64, float32.
inline anyattn::Problem small_problem() {
  anyattn::Problem problem;
  problem.fields.num_q_heads = 8;
  problem.fields.num_kv_heads = 2;
  problem.fields.head_size = problem.fields.head_size_v = 64;
  problem.fields.q_dtype = problem.fields.out_dtype = ANYATTN_DTYPE_FLOAT32;
  problem.kv_cache_dtype("auto");
  return problem;
}

}  // namespace fake
