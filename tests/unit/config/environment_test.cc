// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "config/nearest.h"
#include "config/read.h"
#include "unit/config/config_fixture.h"

using anyattn::config::Config;
using anyattn::config::LoadOptions;
using anyattn::test::holds;
using anyattn::test::options_for;
using anyattn::test::refusal;
using anyattn::test::TempDir;

namespace {

struct Setting {
  TempDir folder;
  LoadOptions options = options_for(folder.write("c.yaml", "selection: {backend: FROM_FILE}\n"));

  Config load(const std::string& name, const std::string& value) {
    options.environment->variables = {{name, value}};
    return anyattn::config::load(options);
  }
};

}  // namespace

TEST_CASE("environment_empty_value_is_an_error_that_names_the_variable") {
  Setting setting;
  for (const char* name : {"ANYATTN_CONFIG", "ANYATTN_BACKEND", "ANYATTN_LOG_LEVEL"})
    CHECK(refusal([&] { setting.load(name, ""); }) ==
          std::string("environment ") + name + ": is set but empty; give it a value or unset it");
}

TEST_CASE("environment_wrong_values_are_refused_with_what_is_allowed") {
  Setting setting;
  CHECK(refusal([&] { setting.load("ANYATTN_LOG_LEVEL", "inof"); }) ==
        "environment ANYATTN_LOG_LEVEL: the log level \"inof\" is none; allowed: debug, info, warning, error, off; did you "
        "mean info?");
  CHECK(
      holds(refusal([&] { setting.load("ANYATTN_BACKEND", "cpu attn"); }),
            "environment ANYATTN_BACKEND: the backend \"cpu attn\" is no name; allowed: a backend's name of capital letters"));
  setting.options.backend = "";
  CHECK(refusal([&] { setting.load("X", "y"); }) == "flag --backend: is empty; give it a value or leave it out");
  setting.options.backend = std::nullopt;
  setting.options.log_level = "loud";
  CHECK(holds(refusal([&] { setting.load("X", "y"); }), "flag: the log level \"loud\" is none"));
}

TEST_CASE("environment_near_misses_of_a_name_are_warnings") {
  Setting setting;
  struct Case {
    const char* name;
    const char* meant;  // null: no warning
  };
  for (const Case& c : {Case{"ANYATTN_BACKEN", "ANYATTN_BACKEND"}, Case{"ANYATTN_BACKENDS", "ANYATTN_BACKEND"},
                        Case{"ANYATTN_BAKCEND", "ANYATTN_BACKEND"}, Case{"ANYATTN_LOGLEVEL", "ANYATTN_LOG_LEVEL"},
                        Case{"ANYATTN_LOG", "ANYATTN_LOG_LEVEL"}, Case{"ANYATTN_CONFIG_FILE", "ANYATTN_CONFIG"},
                        Case{"ANYATTN_CONFG", "ANYATTN_CONFIG"}, Case{"ANYATTN_SHARED_DIR", nullptr},
                        Case{"ANYATTN_REQUIRE_ALL", nullptr}, Case{"ANYATTN_", nullptr}, Case{"BACKEND", nullptr}}) {
    const Config config = setting.load(c.name, "CPU_ATTN");
    CAPTURE(c.name);
    CHECK(config.backend == "FROM_FILE");
    REQUIRE(config.warnings.size() == (c.meant ? 1u : 0u));
    if (c.meant)
      CHECK(config.warnings[0] ==
            std::string("the environment variable ") + c.name + " is not read; did you mean " + c.meant + "?");
  }
}

TEST_CASE("environment_is_ignored_under_raised_rights_and_says_so") {
  Setting setting;
  setting.options.environment->raised_rights = true;
  for (const char* name : {"ANYATTN_CONFIG", "ANYATTN_BACKEND", "ANYATTN_LOG_LEVEL"}) {
    const Config config = setting.load(name, "");
    CHECK(config.file == (setting.folder / "c.yaml"));
    CHECK(config.backend == "FROM_FILE");
    REQUIRE(config.warnings.size() == 1);
    CHECK(config.warnings[0] ==
          std::string("the environment variable ") + name + " is ignored: the process runs with raised rights");
  }
}

TEST_CASE("environment_of_the_process_holds_our_prefix_only") {
  setenv("ANYATTN_BACKEND_OF_TEST", "x=y", 1);
  const anyattn::config::Environment environment = anyattn::config::process_environment();
  unsetenv("ANYATTN_BACKEND_OF_TEST");
  CHECK(environment.variables.at("ANYATTN_BACKEND_OF_TEST") == "x=y");
  for (const auto& [name, value] : environment.variables) CHECK(name.rfind("ANYATTN_", 0) == 0);
  CHECK_FALSE(environment.raised_rights);
}

TEST_CASE("nearest_name_finds_typing_mistakes_and_nothing_else") {
  using anyattn::config::edit_distance;
  using anyattn::config::nearest;
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("backend", "bakcend") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance(std::string(200, 'a'), "a") == 200);
  const std::vector<std::string> names = {"backend", "rules", "order", "allow_fallback"};
  CHECK(nearest("backnd", names) == "backend");
  CHECK(nearest("Allow-Fallback", names) == "allow_fallback");
  CHECK(nearest(" rules ", names) == "rules");
  CHECK(nearest("priority", names) == "");
  CHECK(nearest("", names) == "");
  CHECK(nearest("x", {}) == "");
}

TEST_CASE("environment_library_path_with_an_empty_element_is_warned_about") {
  Setting setting;
  const auto warned = [&](const std::string& path) {
    setting.options.environment->library_path = path;
    const Config config = setting.load("ANYATTN_UNRELATED_THING", "1");
    std::string text;
    for (const std::string& warning : config.warnings)
      if (holds(warning, "LD_LIBRARY_PATH")) text += warning;
    return text;
  };
  for (const char* path : {":/opt/lib", "/opt/lib:", "/a::/b", ":"}) {
    CAPTURE(path);
    CHECK(holds(warned(path), "current folder"));
  }
  CHECK(warned("").empty());
  CHECK(warned("/opt/lib:/usr/lib").empty());
  CHECK(anyattn::config::load(setting.options).library_path == std::vector<std::string>{"/opt/lib", "/usr/lib"});
  setting.options.environment->raised_rights = true;
  CHECK(anyattn::config::load(setting.options).library_path.empty());
}
