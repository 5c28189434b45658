// SPDX-License-Identifier: Apache-2.0
#include "common/changed_config.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/runtime.h"

namespace anyattn::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string entry_path(size_t index, const std::string& key) { return fmt::format("plugins.entries[{}].{}", index, key); }

// What a value in one line says: without its quotes where it has some.
std::string unquoted(const std::string& yaml) {
  const ordered_json text = ordered_json::parse(yaml, nullptr, false);
  return text.is_string() ? text.get<std::string>() : yaml;
}

// Files that count from the folder of the configuration, for a file that lies elsewhere.
std::string absolute(const std::string& yaml, const fs::path& folder) {
  if (yaml == "null") return yaml;
  return ordered_json((folder / unquoted(yaml)).string()).dump();
}

std::string absolute_list(const std::string& yaml, const fs::path& folder) {
  std::vector<std::string> files;
  for (size_t begin = 1; begin + 1 < yaml.size();) {
    const size_t end = std::min(yaml.find(", ", begin), yaml.size() - 1);
    files.push_back(absolute(yaml.substr(begin, end - begin), folder));
    begin = end + 2;
  }
  return fmt::format("[{}]", fmt::join(files, ", "));
}

// "entries[3].options.isa" behind "plugins." -> the first word, and whether it is an item of a list.
struct Word {
  std::string text;
  bool item;
  size_t length;  // in the path, the dot counted
};
Word first_word(const std::string& path) {
  if (path[0] == '[') {
    const size_t end = path.find(']');
    return {path.substr(1, end - 1), true, end + 1 + (end + 1 < path.size() && path[end + 1] == '.' ? 1 : 0)};
  }
  const size_t end = std::min(path.find_first_of(".["), path.size());
  return {path.substr(0, end), false, end + (end < path.size() && path[end] == '.' ? 1 : 0)};
}

using Values = std::vector<std::pair<std::string, std::string>>;

// Values with a common first word stand together, so each run of them is one mapping or item.
void write_block(std::ostream& out, const Values& values, size_t depth) {
  const std::string indent(2 * depth, ' ');
  for (size_t i = 0; i < values.size();) {
    const Word word = first_word(values[i].first);
    const std::string key = word.item ? "-" : word.text + ":";
    if (word.length >= values[i].first.size()) {
      out << indent << key << ' ' << values[i++].second << '\n';
      continue;
    }
    Values inner;
    for (; i < values.size(); ++i) {
      const Word other = first_word(values[i].first);
      if (other.text != word.text || other.item != word.item) break;
      inner.emplace_back(values[i].first.substr(other.length), values[i].second);
    }
    out << indent << key << '\n';
    write_block(out, inner, depth + 1);
  }
}

}  // namespace

ChangedConfig::ChangedConfig(const CommonOptions& options, const Runtime& runtime) : options_(options) {
  const ordered_json config = parse(runtime.config());
  const fs::path folder = fs::path(text_of(config, "file")).parent_path();
  for (const ordered_json& value : config.at("values")) {
    const std::string path = text_of(value, "key");
    std::string yaml = text_of(value, "value");
    if (path == "config" || yaml == "null") continue;
    if (path == "selection.lock" || path == "selection.profile" || path == "probe.cache") yaml = absolute(yaml, folder);
    if (path == "trust.keys") yaml = absolute_list(yaml, folder);
    values_.emplace_back(path, yaml);
  }
}

ChangedConfig::~ChangedConfig() {
  std::error_code error;
  if (!folder_.empty()) fs::remove_all(folder_, error);
}

void ChangedConfig::set(const std::string& path, const std::string& yaml) {
  const auto under = [&](const auto& value) {
    return value.first == path || value.first.starts_with(path + "[") || value.first.starts_with(path + ".");
  };
  std::erase_if(values_, under);
  // Beside the last one that shares all but the last word.
  const std::string beside = path.substr(0, path.find_last_of('.') + 1);
  const auto last =
      std::find_if(values_.rbegin(), values_.rend(), [&](const auto& value) { return value.first.starts_with(beside); });
  values_.insert(last.base(), {path, yaml});
}

void ChangedConfig::set_entry(const std::string& plugin_id, const std::string& key, const std::string& text) {
  size_t index = 0, count = 0;
  bool found = false;
  for (const auto& [path, yaml] : values_) {
    if (!path.starts_with("plugins.entries[") || !path.ends_with("].id")) continue;
    if (unquoted(yaml) == plugin_id) {
      index = count;
      found = true;
    }
    ++count;
  }
  if (!found) {
    std::erase_if(values_, [](const auto& value) { return value.first == "plugins.entries"; });
    index = count;
    const auto last = std::find_if(values_.rbegin(), values_.rend(), [&](const auto& value) {
      return value.first.starts_with(count > 0 ? "plugins.entries[" : "plugins.");
    });
    values_.insert(last.base(), {entry_path(index, "id"), ordered_json(plugin_id).dump()});
  }
  const std::string options = entry_path(index, "options");
  if (key.starts_with("options.")) std::erase_if(values_, [&](const auto& value) { return value.first == options; });  // "{}"
  const std::string path = entry_path(index, key);
  const auto same = std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == path; });
  const std::string yaml = ordered_json(text).dump();
  if (same != values_.end()) {
    same->second = yaml;
    return;
  }
  const std::string near = key.starts_with("options.") ? options + "." : entry_path(index, "");
  auto last = std::find_if(values_.rbegin(), values_.rend(), [&](const auto& value) { return value.first.starts_with(near); });
  if (last == values_.rend())
    last = std::find_if(values_.rbegin(), values_.rend(),
                        [&](const auto& value) { return value.first.starts_with(entry_path(index, "")); });
  values_.insert(last.base(), {path, yaml});
}

void ChangedConfig::add_plugin(const std::string& file) {
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) throw Failure(kExitUsage, fmt::format("{}: {}", file, error.message()));
  const fs::path sidecar = fs::path(path).replace_extension(".yaml");
  std::ifstream in(sidecar);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("id: ")) return set_entry(unquoted(line.substr(4)), "file", path.string());
  throw Failure(kExitUsage, fmt::format("{}: its sidecar {} is not there or names no id", file, sidecar.string()));
}

CommonOptions ChangedConfig::write() {
  std::error_code error;
  if (folder_.empty()) {
    std::string name = (fs::temp_directory_path(error) / "anyattn.XXXXXX").string();
    if (error || !mkdtemp(name.data()))
      throw Failure(kExitFailed, fmt::format("no folder for a configuration: {}: {}", name, std::strerror(errno)));
    folder_ = name;
  }
  CommonOptions changed = options_;
  changed.config_file = folder_ + "/config.yaml";
  std::ofstream out(changed.config_file);
  write_block(out, values_, 0);
  out.close();
  if (!out) throw Failure(kExitFailed, fmt::format("{}: cannot be written", changed.config_file));
  return changed;
}

}  // namespace anyattn::tools
