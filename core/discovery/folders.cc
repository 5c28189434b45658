// SPDX-License-Identifier: Apache-2.0
#include "discovery/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace anyattn::discovery {
namespace {

namespace fs = std::filesystem;

bool is_plugin_name(const std::string& name) {
  constexpr std::string_view kPrefix = "anyattn_";
  constexpr std::string_view kSuffix = ".so";
  return name.size() > kPrefix.size() + kSuffix.size() && name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

struct Listing {
  std::vector<std::string> files;    // names of plugins
  std::vector<std::string> folders;  // names
  std::error_code error;
};

Listing list(const fs::path& folder) {
  Listing listing;
  fs::directory_iterator entry(folder, listing.error);
  for (; !listing.error && entry != fs::directory_iterator(); entry.increment(listing.error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      // What begins with a dot is somebody's work in progress: an installer renames it when it is whole.
      if (!name.starts_with('.')) listing.folders.push_back(name);
    } else if (is_plugin_name(name)) {
      listing.files.push_back(name);
    }
  }
  std::ranges::sort(listing.files);
  std::ranges::sort(listing.folders);
  return listing;
}

// A folder that somebody wrote down and that is not there is a mistake, not an empty folder.
Skip unreadable(const std::string& folder, const std::string& why, const config::Config& config) {
  Skip skip;
  skip.path = folder;
  skip.status = ANYATTN_INVALID_ARGUMENT;
  skip.reason = fmt::format("the folder of plugins.search ({}) cannot be read: {}", config.search_origin.text, why);
  skip.remedy = "make the folder, or take it out of plugins.search";
  skip.required = config.search_origin.text != config::Origin{}.text;
  return skip;
}

}  // namespace

std::vector<Located> list_folders(const config::Config& config, std::vector<Skip>& skips) {
  std::vector<Located> found;
  const auto add_files = [&found](const fs::path& folder, const Listing& listing, const std::string& origin) {
    for (const std::string& name : listing.files) found.push_back({(folder / name).string(), origin, nullptr});
  };
  for (const std::string& top : config.search) {
    // A relative folder would be looked up in the current one: the configuration reader makes them absolute.
    if (!fs::path(top).is_absolute()) {
      skips.push_back(unreadable(top, "it is not absolute", config));
      continue;
    }
    const std::string origin = fmt::format("plugins.search {}", top);
    const Listing listing = list(top);
    if (listing.error) {
      if (listing.error == std::errc::no_such_file_or_directory && config.search_origin.text == config::Origin{}.text) continue;
      skips.push_back(unreadable(top, listing.error.message(), config));
      continue;
    }
    add_files(top, listing, origin);
    for (const std::string& name : listing.folders) {
      const fs::path folder = fs::path(top) / name;
      const Listing below = list(folder);
      if (below.error) {
        skips.push_back(unreadable(folder.string(), below.error.message(), config));
        skips.back().required = false;
        continue;
      }
      add_files(folder, below, origin);
    }
  }
  return found;
}

}  // namespace anyattn::discovery
