// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <filesystem>

#include "api/library_path.h"
#include "config/read.h"
#include "unit/config/config_fixture.h"

TEST_CASE("installed_files_of_a_build_tree_are_the_build_trees_own") {
  const std::string file = anyattn::api::installed_file("default.yaml");
  CHECK(std::filesystem::equivalent(file, ANYATTN_BINARY_DIR "/config/default.yaml"));
  const anyattn::config::Config config = anyattn::config::load(anyattn::test::options_for(file));
  REQUIRE(config.search.size() == 1);
  CHECK(std::filesystem::weakly_canonical(config.search[0]) == std::filesystem::weakly_canonical(ANYATTN_PLUGIN_DIR));
}
