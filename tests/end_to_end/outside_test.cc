// SPDX-License-Identifier: Apache-2.0
// A stranger's plugin: C, built outside the tree against the installed SDK only, chosen by the configuration alone.
#include <doctest/doctest.h>

#include <algorithm>

#include "end_to_end/command.h"
#include "shared_dir.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

void succeed(const std::vector<std::string>& command) {
  const Result result = run_program(command);
  INFO(command[1], " ", command.back(), "\n", result.out, result.err);
  REQUIRE(result.code == 0);
}

// This build, installed once for the whole program.
const std::string& prefix() {
  static const TempDir dir;
  static const std::string path = [] {
    succeed({ANYATTN_CMAKE, "--install", ANYATTN_BINARY_DIR, "--prefix", dir / "prefix"});
    return dir / "prefix";
  }();
  return path;
}

// Builds a folder as a project of its own against the installed package.
void build_outside(const std::string& folder, const std::string& build) {
  succeed({ANYATTN_CMAKE, "-S", folder, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
           "-DCMAKE_PREFIX_PATH=" + prefix()});
  succeed({ANYATTN_CMAKE, "--build", build});
}

int lines_of(const std::string& file) {
  const std::string text = read_file(file);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("plugin_from_outside_gives_the_reference_text_by_editing_the_configuration") {
  const auto shared = anyattn::testing::shared_dir();
  if (!shared) return;
  const std::string plugin = prefix() + "/share/anyattn/template";
  CHECK(lines_of(plugin + "/template_attn.c") <= 200);
  TempDir dir;
  build_outside(plugin, dir / "build");
  const auto text_with = [&](const std::string& yaml) {
    const std::string config = dir.write("config.yaml", yaml);
    return run_program({prefix() + "/bin/anyattn", "generate", "--config", config, "--checkpoint",
                        *shared / "data/stories260K.bin", "--tokenizer", *shared / "data/tok512.bin", "--json"})
        .json();
  };
  const std::string search = "version: 1\nplugins:\n  search: [" + prefix() + "/lib/anyattn/plugins, build/plugins]\n";
  const json expected = json::parse(read_file(*shared / "data/stories260K.expected.json"));

  const json ours = text_with(search);
  CHECK(ours["backend"] == "CPU_ATTN");
  CHECK(ours["token_ids"] == expected["token_ids"]);

  const json theirs = text_with(search + "selection:\n  backend: TEMPLATE_ATTN\n");
  CHECK(theirs["backend"] == "TEMPLATE_ATTN");
  CHECK(theirs["plugin"] == "com.example.template");
  CHECK(theirs["token_ids"] == expected["token_ids"]);
  CHECK(theirs["text"] == expected["text"]);
}

TEST_CASE("installed_command_finds_the_installed_plugins_without_a_configuration") {
  const json list = run_program({prefix() + "/bin/anyattn", "list", "--json"}).json();
  REQUIRE(!list["backends"].empty());
  for (const json& backend : list["backends"]) CHECK(contains(backend["path"], prefix() + "/lib/anyattn/plugins/"));
}

TEST_CASE("engine_from_outside_finds_the_package_and_a_backend") {
  TempDir dir;
  build_outside(ANYATTN_SOURCE_DIR "/tests/end_to_end/outside_engine", dir / "build");
  const Result result = run_program({dir / "build/outside_engine"});
  CHECK(result.code == 0);
  CHECK(result.out == "CPU_ATTN\n");
}
