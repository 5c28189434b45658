// SPDX-License-Identifier: Apache-2.0
// default.yaml, README.md, schema.json and the examples say what the schema says.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "config/config_schema.h"
#include "config/json_schema.h"
#include "selector/problem_text.h"
#include "unit/config/config_fixture.h"

using namespace anyattn::config;
using anyattn::test::options_for;
using anyattn::test::TempDir;

namespace {

const std::string kFolder = ANYATTN_SOURCE_DIR "/config/";

std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Key {
  std::string path;
  std::string fallback;  // "required" where there is none
};

// Every key that has a value of its own, in the schema's order; sections only as a part of the path.
void collect(const Schema& schema, const std::string& path, std::vector<Key>& keys) {
  for (const Field& field : fields_of(schema)) {
    const std::string here = join_path(path, field.name);
    if (field.schema.type != Schema::Type::kMapping) keys.push_back({here, field.required ? "required" : field.fallback});
    collect(field.schema, here, keys);
    if (field.schema.type == Schema::Type::kList) collect(field.schema.element.front(), here + "[]", keys);
  }
}

std::vector<Key> schema_keys() {
  std::vector<Key> keys;
  collect(config_schema().root, "", keys);
  return keys;
}

std::string without_ticks(std::string cell) {
  cell.erase(std::remove(cell.begin(), cell.end(), '`'), cell.end());
  const size_t begin = cell.find_first_not_of(' ');
  return begin == std::string::npos ? "" : cell.substr(begin, cell.find_last_not_of(' ') - begin + 1);
}

}  // namespace

TEST_CASE("config_readme_names_every_key_with_its_default") {
  std::istringstream lines(text_of_file(kFolder + "README.md"));
  std::vector<Key> rows;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream columns(line);
    for (std::string cell; std::getline(columns, cell, '|');) cells.push_back(without_ticks(cell));
    REQUIRE(cells.size() == 5);
    CHECK_FALSE(cells[4].empty());
    rows.push_back({cells[1], cells[3]});
  }
  const std::vector<Key> keys = schema_keys();
  CHECK(keys.size() == 29);
  REQUIRE(rows.size() == keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK(rows[i].path == keys[i].path);
    CHECK(rows[i].fallback == keys[i].fallback);
  }
}

TEST_CASE("config_default_file_holds_every_key_at_its_default_with_a_comment") {
  const Config given = load(options_for(kFolder + "default.yaml"));
  const TempDir folder;
  const Config bare = load(options_for(folder.write("config/default.yaml", "version: 1\n")));
  REQUIRE(given.values.size() == bare.values.size());
  std::istringstream file(text_of_file(kFolder + "default.yaml"));
  std::vector<std::string> lines{""};
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::set<std::string> named;
  for (size_t i = 1; i < given.values.size(); ++i) {
    const Config::Value& value = given.values[i];
    CAPTURE(value.key);
    CHECK(value.key == bare.values[i].key);
    if (value.key != "plugins.search") CHECK(value.value == bare.values[i].value);
    REQUIRE(value.origin.rfind(given.file + ":", 0) == 0);
    const std::string& line = lines.at(std::stoul(value.origin.substr(given.file.size() + 1)));
    CHECK(line.find(" # ") != std::string::npos);
    named.insert(value.key);
  }
  CHECK(given.search == std::vector<std::string>{kFolder + "plugins"});
  CHECK(bare.search == std::vector<std::string>{(folder / "config/plugins")});
  for (const Key& key : schema_keys())
    if (key.path.find("[]") == std::string::npos) CHECK_MESSAGE(named.count(key.path) == 1, key.path);
}

TEST_CASE("config_json_schema_is_what_the_typed_schema_makes") {
  CHECK_MESSAGE(text_of_file(kFolder + "schema.json") == json_schema(config_schema(), "AnyAttn configuration"),
                "config/schema.json is stale; build the target config_schema");
}

TEST_CASE("config_examples_all_load_and_name_real_fields") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + "examples")) {
    CAPTURE(entry.path().string());
    REQUIRE(entry.path().extension() == ".yaml");
    LoadOptions options = options_for(entry.path().string());
    options.rule_fields = anyattn::selector::rule_field_names();
    const Config config = load(options);
    CHECK(config.values.size() > 10);
    for (const Rule& rule : config.rules)
      for (const Option& when : rule.when) {
        const auto* field = anyattn::selector::find_field(when.key);
        if (field) CHECK_MESSAGE(anyattn::selector::field_value_problem(*field, when.value).empty(), when.key, " ", when.value);
      }
    ++count;
  }
  CHECK(count == 5);
}

TEST_CASE("config_readme_example_loads") {
  const std::string readme = text_of_file(kFolder + "README.md");
  const size_t begin = readme.find("```yaml\n") + 8;
  const TempDir folder;
  const Config config = anyattn::test::load_text(folder, readme.substr(begin, readme.find("```", begin) - begin));
  CHECK(config.backend == "CPU_ATTN");
  CHECK(config.search == std::vector<std::string>{"/usr/lib/anyattn/plugins"});
}

TEST_CASE("config_struct_defaults_are_the_schemas") {
  const TempDir folder;
  const Config read = anyattn::test::load_text(folder, "version: 1\n");
  const Config untouched;
  CHECK(read.probe_enabled == untouched.probe_enabled);
  CHECK(read.probe_timeout_ms == untouched.probe_timeout_ms);
  CHECK(read.log_level == untouched.log_level);
  CHECK(read.trust_level == untouched.trust_level);
  CHECK(read.backend == untouched.backend);
}
