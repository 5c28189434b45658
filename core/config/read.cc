// SPDX-License-Identifier: Apache-2.0
#include "config/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "config/config_schema.h"
#include "config/environment.h"
#include "config/forms.h"
#include "config/manifest.h"
#include "config/names.h"
#include "config/nearest.h"

namespace anyattn::config {
namespace {

namespace fs = std::filesystem;

// A value from a flag, a variable or the file, nearest first.
struct Choice {
  std::string value;
  Origin origin;
};

std::optional<Choice> nearest_source(const std::optional<std::string>& flag, const char* flag_name,
                                     const std::optional<std::string>& variable, const char* variable_name) {
  if (flag && flag->empty()) throw ConfigError(fmt::format("flag --{}: is empty; give it a value or leave it out", flag_name));
  if (flag) return Choice{*flag, {"flag"}};
  if (variable) return Choice{*variable, {std::string("environment ") + variable_name}};
  return std::nullopt;
}

// Absolute, without "." and "..", no trailing slash. Symbolic links are left: what they point to may change while we run.
std::string absolute_path(const fs::path& folder, const std::string& path) {
  std::string out = (folder / path).lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

class Binder {
 public:
  Binder(std::string file, const std::vector<std::string>& rule_fields) : folder_(fs::path(file).parent_path()) {
    Document document = read_yaml(file);
    check(document, config_schema(rule_fields));
    root_ = std::move(document.root);
    config_.file = std::move(file);
  }

  Config bind() && {
    bind_plugins(at(root_, "plugins"));
    const YamlNode& override_owner = at(at(root_, "registry"), "override");
    for (size_t i = 0; i < override_owner.items.size(); ++i)
      config_.override_owner.emplace(override_owner.keys[i].text, override_owner.items[i].text);
    bind_selection(at(root_, "selection"));
    bind_rest();
    add_values(root_, "");
    return std::move(config_);
  }

 private:
  Origin origin(Mark mark) const { return {mark.line ? fmt::format("{}:{}", config_.file, mark.line) : "default"}; }

  std::string resolve(const YamlNode& node, const std::string& path) const {
    if (node.text[0] == '~')
      fail(config_.file, node.mark, path, fmt::format("got {}; ~ is not expanded, write the whole path", quote(node.text)));
    return absolute_path(folder_, node.text);
  }

  void bind_plugins(const YamlNode& plugins) {
    const YamlNode& search = at(plugins, "search");
    config_.search_origin = origin(search.mark);
    for (size_t i = 0; i < search.items.size(); ++i) {
      const std::string path = join_path("plugins.search", i);
      std::string folder = resolve(search.items[i], path);
      if (std::find(config_.search.begin(), config_.search.end(), folder) != config_.search.end())
        fail(config_.file, search.items[i].mark, path, fmt::format("the folder {} is listed twice; keep one", folder));
      config_.search.push_back(std::move(folder));
    }
    const YamlNode& entries = at(plugins, "entries");
    for (size_t i = 0; i < entries.items.size(); ++i) bind_entry(entries.items[i], join_path("plugins.entries", i));
    config_.max_contents = static_cast<uint32_t>(integer_of(at(plugins, "max_contents")));
  }

  void bind_entry(const YamlNode& node, const std::string& path) {
    PluginEntry entry;
    entry.id = text_of(at(node, "id"));
    const YamlNode& file = at(node, "file");
    if (!is_null(file)) entry.file = resolve(file, path + ".file");
    entry.required = boolean_of(at(node, "required"));
    for (const auto& [key, value] :
         {std::pair("hash", &entry.hash), std::pair("version", &entry.version), std::pair("key", &entry.key)})
      if (!is_null(at(node, key))) *value = text_of(at(node, key));
    try {
      version_in_range("1", entry.version);
    } catch (const std::invalid_argument& mistake) {
      fail(config_.file, at(node, "version").mark, path + ".version", mistake.what());
    }
    entry.options = bind_options(at(node, "options"));
    entry.origin = origin(node.mark);
    for (const PluginEntry& other : config_.entries) {
      if (other.id == entry.id)
        fail(config_.file, at(node, "id").mark, path + ".id",
             fmt::format("the plugin {} has an entry already ({}); keep one", entry.id, other.origin.text));
      if (!entry.file.empty() && other.file == entry.file)
        fail(config_.file, file.mark, path + ".file", fmt::format("the file {} is named already by {}", entry.file, other.id));
    }
    config_.entries.push_back(std::move(entry));
  }

  std::vector<Option> bind_options(const YamlNode& map) const {
    std::vector<Option> options;
    for (size_t i = 0; i < map.items.size(); ++i)
      options.push_back({map.keys[i].text, map.items[i].text, origin(map.keys[i].mark)});
    return options;
  }

  void bind_selection(const YamlNode& selection) {
    const YamlNode& backend = at(selection, "backend");
    config_.backend = is_null(backend) ? "" : text_of(backend);
    config_.backend_origin = origin(backend.mark);
    const std::vector<YamlNode>& rules = at(selection, "rules").items;
    config_.rules.reserve(rules.size());
    for (const YamlNode& rule : rules)
      config_.rules.push_back({bind_options(at(rule, "when")), text_of(at(rule, "backend")), origin(rule.mark)});
    const YamlNode& order = at(selection, "order");
    for (size_t i = 0; i < order.items.size(); ++i) config_.order.emplace(order.keys[i].text, texts_of(order.items[i]));
    config_.quarantine_after = static_cast<uint32_t>(integer_of(at(selection, "quarantine_after")));
    const YamlNode& lock = at(selection, "lock");
    if (!is_null(lock)) config_.lock = resolve(lock, "selection.lock");
    const YamlNode& profile = at(selection, "profile");
    if (!is_null(profile)) config_.profile = resolve(profile, "selection.profile");
    config_.allow_fallback = texts_of(at(selection, "allow_fallback"));
  }

  void bind_rest() {
    const YamlNode& trust = at(root_, "trust");
    const std::string& level = text_of(at(trust, "level"));
    config_.trust_level =
        static_cast<TrustLevel>(std::ranges::find(kTrustLevels, level) - kTrustLevels.begin());  // the schema took it
    config_.trust_keys = texts_of(at(trust, "keys"));
    const YamlNode& probe = at(root_, "probe");
    config_.probe_enabled = boolean_of(at(probe, "enabled"));
    config_.probe_timeout_ms = static_cast<uint32_t>(integer_of(at(probe, "timeout_ms")));
    const YamlNode& cache = at(probe, "cache");
    if (!is_null(cache)) config_.probe_cache = resolve(cache, "probe.cache");
    config_.log_level = text_of(at(at(root_, "log"), "level"));
  }

  // One value a leaf. A list of texts is one leaf, a list of mappings is not; paths are shown as they are used.
  void add_values(const YamlNode& node, const std::string& path) {
    for (size_t i = 0; i < node.items.size(); ++i) {
      const bool mapping = node.kind == YamlNode::Kind::kMapping;
      const YamlNode& item = node.items[i];
      const std::string item_path = mapping ? join_path(path, node.keys[i].text) : join_path(path, i);
      const bool inner =
          (item.kind == YamlNode::Kind::kMapping && !item.items.empty()) ||
          (item.kind == YamlNode::Kind::kList && !item.items.empty() && item.items[0].kind == YamlNode::Kind::kMapping);
      if (inner) {
        add_values(item, item_path);
        continue;
      }
      std::string value = to_line(item);
      if (item_path == "plugins.search") value = fmt::format("[{}]", comma_list(config_.search));
      if (path.rfind("plugins.entries[", 0) == 0 && mapping && node.keys[i].text == "file" && !is_null(item))
        value = resolve(item, item_path);
      config_.values.push_back({item_path, value, origin(mapping ? node.keys[i].mark : item.mark).text});
    }
  }

  fs::path folder_;
  YamlNode root_;
  Config config_;
};

void override_value(Config& config, const std::string& key, const Choice& choice) {
  for (Config::Value& value : config.values)
    if (value.key == key) value = {key, choice.value, choice.origin.text};
}

void apply_backend(Config& config, const Choice& choice) {
  const TextForm form = backend_name_form();
  if (!form.matches(choice.value))
    throw ConfigError(
        fmt::format("{}: the backend {} is no name; allowed: {}", choice.origin.text, quote(choice.value), form.allowed));
  config.backend = choice.value;
  config.backend_origin = choice.origin;
  override_value(config, "selection.backend", choice);
}

void apply_log_level(Config& config, const Choice& choice) {
  const std::vector<std::string> levels = log_levels();
  if (std::find(levels.begin(), levels.end(), choice.value) == levels.end()) {
    const std::string near = nearest(choice.value, levels);
    throw ConfigError(fmt::format("{}: the log level {} is none; allowed: {}{}", choice.origin.text, quote(choice.value),
                                  comma_list(levels), near.empty() ? "" : "; did you mean " + near + "?"));
  }
  config.log_level = choice.value;
  override_value(config, "log.level", choice);
}

}  // namespace

Config load(const LoadOptions& options) {
  const EnvironmentValues variables = read_environment(options.environment ? *options.environment : process_environment());
  const Choice named = nearest_source(options.config_path, "config", variables.config_path, kConfigVariable)
                           .value_or(Choice{options.default_config_path, {"default"}});
  if (named.value.empty()) throw ConfigError("no configuration file is named, and no default.yaml came with the library");
  std::error_code status;
  const std::string file = absolute_path(fs::current_path(status), named.value);
  if (status) throw ConfigError(fmt::format("{}: the current folder cannot be read: {}", named.value, status.message()));
  if (!fs::exists(file, status))
    throw ConfigError(
        fmt::format("{}: there is no such file ({}); name one with --config or {}", file, named.origin.text, kConfigVariable));

  Config config = Binder(file, options.rule_fields).bind();
  config.values.insert(config.values.begin(), {"config", config.file, named.origin.text});
  if (const auto backend = nearest_source(options.backend, "backend", variables.backend, kBackendVariable))
    apply_backend(config, *backend);
  if (const auto level = nearest_source(options.log_level, "log-level", variables.log_level, kLogLevelVariable))
    apply_log_level(config, *level);
  config.warnings = variables.warnings;
  config.library_path = variables.library_path;
  return config;
}

}  // namespace anyattn::config
