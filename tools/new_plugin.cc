// SPDX-License-Identifier: Apache-2.0
// anyattn new-plugin: writes a plugin of its own project that builds and passes the kit as it stands.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <system_error>
#include <vector>

#include "common/failure.h"
#include "new_plugin_files.h"
#include "vendor_verbs.h"

namespace anyattn::tools {
namespace {

namespace fs = std::filesystem;

// NAME_ATTN has to be a backend's name, of 64 characters at most.
bool is_name(const std::string& name) {
  static const std::regex form("[a-z][a-z0-9_]{0,58}");
  return std::regex_match(name, form);
}

// As sidecars take it.
bool is_id(const std::string& id) {
  static const std::regex form("[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*");
  return id.size() <= 128 && std::regex_match(id, form);
}

// What a C++ string and a YAML text in double quotes both hold as it stands.
bool is_plain_text(const std::string& text) {
  return !text.empty() && std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == '"' || c == '\\'; });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string filled(std::string text, const NewPluginOptions& options) {
  std::string backend = options.name;
  std::ranges::transform(backend, backend.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  text = replaced(std::move(text), "@BACKEND@", backend + "_ATTN");
  text = replaced(std::move(text), "@NAME@", options.name);
  text = replaced(std::move(text), "@ID@", options.id.empty() ? "com.example." + options.name : options.id);
  return replaced(std::move(text), "@VENDOR@", options.vendor);
}

// Files and folders of ours that are taken away again unless all of them could be written.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& folder) : folder_(folder) {
    std::error_code error;
    for (fs::path above = fs::absolute(folder); !fs::exists(above, error) && above != above.parent_path();
         above = above.parent_path())
      made_ = above;
    fs::create_directories(folder, error);
    if (error) give_up("DIR " + folder.string(), error.message());
  }

  void write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream out(path, std::ios::binary);
    written_.push_back(path);
    out << text;
    out.close();
    if (!out) give_up(path.string(), std::strerror(errno));
  }

 private:
  [[noreturn]] void give_up(const std::string& what, const std::string& why) const {
    std::error_code ignored;
    for (const fs::path& path : written_) fs::remove(path, ignored);
    if (!made_.empty()) fs::remove_all(made_, ignored);
    throw Failure(kExitFailed, fmt::format("{}: {}", what, why));
  }

  fs::path folder_;
  fs::path made_;  // the uppermost folder that was not there; empty: all were
  std::vector<fs::path> written_;
};

}  // namespace

int new_plugin(const NewPluginOptions& options) {
  if (!is_name(options.name)) {
    throw Failure(kExitUsage,
                  fmt::format("NAME '{}': allowed: [a-z][a-z0-9_]*, 59 characters at most, as in acme for ACME_ATTN in "
                              "anyattn_acme.so",
                              options.name));
  }
  if (!options.id.empty() && !is_id(options.id)) {
    throw Failure(kExitUsage,
                  fmt::format("--id {}: allowed: letters, digits, '_' and '-' in words joined by '.', 128 characters at "
                              "most, as in com.acme.attn",
                              options.id));
  }
  if (!is_plain_text(options.vendor)) {
    throw Failure(kExitUsage, fmt::format("--vendor {}: allowed: text without quotes and backslashes", options.vendor));
  }
  const fs::path folder = options.folder;
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    throw Failure(
        kExitUsage,
        fmt::format("DIR {}: it holds something, and nothing is written over; name an empty or a new folder", options.folder));
  }
  NewFolder project(folder);
  for (const ProjectFile& file : project_files()) project.write(filled(file.name, options), filled(file.text, options));
  fmt::print("{}: a plugin with the backend {}; README.md there says how to build, check and use it\n", options.folder,
             filled("@BACKEND@", options));
  return kExitOk;
}

}  // namespace anyattn::tools
