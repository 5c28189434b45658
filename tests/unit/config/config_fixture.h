// SPDX-License-Identifier: Apache-2.0
// Helpers of the configuration tests: a scratch folder, files in it, and the text of a refusal.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/read.h"

namespace anyattn::test {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "anyattn_config_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

// Options that see no flag and no variable of the process.
inline config::LoadOptions options_for(const std::string& file) {
  config::LoadOptions options;
  options.default_config_path = file;
  options.environment = config::Environment{};
  return options;
}

inline config::Config load_text(const ScratchFolder& folder, const std::string& text) {
  return config::load(options_for(folder.write("config.yaml", text)));
}

// What a refused call says; "" where it is not refused.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const config::ConfigError& error) {
    return error.what();
  }
  return {};
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace anyattn::test
