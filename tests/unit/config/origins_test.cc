// SPDX-License-Identifier: Apache-2.0
// Where each value comes from: flag > environment > file > default.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "config/read.h"
#include "unit/config/config_fixture.h"

using anyattn::config::Config;
using anyattn::config::Environment;
using anyattn::config::LoadOptions;
using anyattn::test::holds;
using anyattn::test::load_text;
using anyattn::test::options_for;
using anyattn::test::refusal;
using anyattn::test::TempDir;

namespace {

Config::Value value_of(const Config& config, const std::string& key) {
  const auto found =
      std::find_if(config.values.begin(), config.values.end(), [&](const Config::Value& v) { return v.key == key; });
  REQUIRE_MESSAGE(found != config.values.end(), key);
  return *found;
}

}  // namespace

TEST_CASE("config_values_hold_every_key_with_its_origin") {
  const TempDir folder;
  const Config config = load_text(folder, R"(version: 1
plugins:
  search:
    - a
    - /b
  entries:
    - {id: x.y, options: {isa: avx2}}
probe:
  enabled: false
selection:
  rules:
    - when: {head_size: 64}
      backend: A
)");
  const std::string file = config.file;
  const std::string here = std::filesystem::path(file).parent_path().string();
  const std::map<std::string, std::pair<std::string, std::string>> wanted = {
      {"config", {file, "default"}},
      {"version", {"1", file + ":1"}},
      {"plugins.search", {"[" + here + "/a, /b]", file + ":3"}},
      {"plugins.entries[0].id", {"x.y", file + ":7"}},
      {"plugins.entries[0].file", {"null", "default"}},
      {"plugins.entries[0].required", {"false", "default"}},
      {"plugins.entries[0].hash", {"null", "default"}},
      {"plugins.entries[0].version", {"null", "default"}},
      {"plugins.entries[0].key", {"null", "default"}},
      {"plugins.max_contents", {"8", "default"}},
      {"plugins.entries[0].options.isa", {"avx2", file + ":7"}},
      {"registry.override", {"{}", "default"}},
      {"selection.backend", {"null", "default"}},
      {"selection.rules[0].when.head_size", {"64", file + ":12"}},
      {"selection.rules[0].backend", {"A", file + ":13"}},
      {"selection.order.cuda", {"[FLASH_ATTN, FLASH_MLA, PORTABLE_ATTN, PORTABLE_MLA]", "default"}},
      {"selection.order.hip", {"[PORTABLE_ATTN, PORTABLE_MLA]", "default"}},
      {"selection.order.cpu", {"[CPU_ATTN, CPU_MLA, PORTABLE_ATTN, PORTABLE_MLA]", "default"}},
      {"selection.allow_fallback", {"[]", "default"}},
      {"selection.quarantine_after", {"3", "default"}},
      {"selection.lock", {"null", "default"}},
      {"selection.profile", {"null", "default"}},
      {"trust.level", {"none", "default"}},
      {"trust.keys", {"[]", "default"}},
      {"probe.enabled", {"false", file + ":9"}},
      {"probe.timeout_ms", {"10000", "default"}},
      {"probe.cache", {"null", "default"}},
      {"log.level", {"info", "default"}},
  };
  CHECK(config.values.size() == wanted.size());
  for (const auto& [key, pair] : wanted) {
    const Config::Value value = value_of(config, key);
    CAPTURE(key);
    CHECK(value.value == pair.first);
    CHECK(value.origin == pair.second);
  }
}

TEST_CASE("config_explicit_false_zero_empty_and_null_keep_their_meaning") {
  struct Case {
    std::string text;
    std::string key;
    std::string value;
    bool explicitly;
  };
  const TempDir folder;
  for (const Case& c :
       {Case{"probe: {enabled: true}", "probe.enabled", "true", true},
        Case{"probe: {enabled: false}", "probe.enabled", "false", true},
        Case{"probe: {enabled: null}", "probe.enabled", "true", true},
        Case{"probe: {enabled: }", "probe.enabled", "true", true}, Case{"probe: {}", "probe.enabled", "true", false},
        Case{"probe: null", "probe.enabled", "true", false}, Case{"probe:", "probe.timeout_ms", "10000", false},
        Case{"plugins: {search: []}", "plugins.search", "[]", true},
        Case{"selection: {order: {cpu: []}}", "selection.order.cpu", "[]", true},
        Case{"selection: {backend: ~}", "selection.backend", "null", true},
        Case{"plugins: {entries: [{id: a.b, required: false}]}", "plugins.entries[0].required", "false", true},
        Case{"plugins: {entries: [{id: a.b, required: null}]}", "plugins.entries[0].required", "false", true},
        Case{"plugins: {entries: [{id: a.b, options: {n: 0}}]}", "plugins.entries[0].options.n", "0", true},
        Case{"plugins: {entries: [{id: a.b, options: {n: \"\"}}]}", "plugins.entries[0].options.n", "\"\"", true}}) {
    const Config config = load_text(folder, c.text);
    const Config::Value value = value_of(config, c.key);
    CAPTURE(c.text);
    CHECK(value.value == c.value);
    CHECK(value.origin == (c.explicitly ? config.file + ":1" : "default"));
  }
  CHECK(load_text(folder, "plugins: {search: []}").search.empty());
}

TEST_CASE("config_search_defaults_to_the_folder_beside_the_file") {
  const TempDir folder;
  const Config config = load_text(folder, "version: 1\n");
  CHECK(config.search == std::vector<std::string>{(folder / "plugins")});
  CHECK(config.search_origin.text == "default");
  CHECK(load_text(folder, "version: 1\nplugins: {search: [x]}\n").search_origin.text == (folder / "config.yaml") + ":2");
}

TEST_CASE("config_flag_beats_environment_beats_file_beats_default") {
  const TempDir folder;
  LoadOptions options = options_for(folder.write("c.yaml", "selection:\n  backend: FROM_FILE\nlog: {level: error}\n"));
  const auto expect = [&](const std::string& backend, const std::string& backend_origin, const std::string& level,
                          const std::string& level_origin) {
    const Config config = anyattn::config::load(options);
    CHECK(config.backend == backend);
    CHECK(config.backend_origin.text == backend_origin);
    CHECK(value_of(config, "selection.backend").value == (backend.empty() ? "null" : backend));
    CHECK(value_of(config, "selection.backend").origin == backend_origin);
    CHECK(config.log_level == level);
    CHECK(value_of(config, "log.level").origin == level_origin);
  };
  const std::string file = (folder / "c.yaml");
  expect("FROM_FILE", file + ":2", "error", file + ":3");
  options.environment->variables = {{"ANYATTN_BACKEND", "FROM_ENV"}, {"ANYATTN_LOG_LEVEL", "debug"}};
  expect("FROM_ENV", "environment ANYATTN_BACKEND", "debug", "environment ANYATTN_LOG_LEVEL");
  options.backend = "FROM_FLAG";
  options.log_level = "warning";
  expect("FROM_FLAG", "flag", "warning", "flag");
  options = options_for(folder.write("c.yaml", "version: 1\n"));
  expect("", "default", "info", "default");
}

TEST_CASE("config_file_is_the_flags_then_the_environments_then_the_default") {
  const TempDir folder;
  LoadOptions options = options_for(folder.write("default.yaml", "version: 1\n"));
  CHECK(anyattn::config::load(options).file == (folder / "default.yaml"));
  options.environment->variables["ANYATTN_CONFIG"] = folder.write("env.yaml", "version: 1\n");
  Config config = anyattn::config::load(options);
  CHECK(config.file == (folder / "env.yaml"));
  CHECK(value_of(config, "config").origin == "environment ANYATTN_CONFIG");
  options.config_path = folder.write("flag.yaml", "version: 1\n");
  config = anyattn::config::load(options);
  CHECK(config.file == (folder / "flag.yaml"));
  CHECK(value_of(config, "config").origin == "flag");

  // A relative flag counts from the current folder, as a shell user expects.
  options.config_path = std::filesystem::relative((folder / "x/../flag.yaml")).string();
  CHECK(std::filesystem::path(anyattn::config::load(options).file).is_absolute());
}

TEST_CASE("config_missing_files_name_who_asked_for_them") {
  const TempDir folder;
  LoadOptions options = options_for("");
  CHECK(refusal([&] { anyattn::config::load(options); }) ==
        "no configuration file is named, and no default.yaml came with the library");
  options.environment->variables["ANYATTN_CONFIG"] = (folder / "none.yaml");
  CHECK(
      holds(refusal([&] { anyattn::config::load(options); }), "none.yaml: there is no such file (environment ANYATTN_CONFIG)"));
  options.config_path = (folder / "nothing.yaml");
  CHECK(holds(refusal([&] { anyattn::config::load(options); }), "nothing.yaml: there is no such file (flag)"));
  options.config_path = "";
  CHECK(holds(refusal([&] { anyattn::config::load(options); }), "flag --config: is empty"));
}
