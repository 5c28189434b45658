// SPDX-License-Identifier: Apache-2.0
// The README's example is what it says: its YAML is a configuration, its commands run with it.
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;

namespace {

// The first fenced block of `language`.
std::string block_of(const std::string& text, const std::string& language) {
  const std::string fence = "```" + language + "\n";
  const size_t start = text.find(fence);
  REQUIRE(start != std::string::npos);
  return text.substr(start + fence.size(), text.find("```", start + fence.size()) - start - fence.size());
}

// Words of every line "$ anyattn ...".
std::vector<std::vector<std::string>> commands_of(const std::string& text) {
  std::vector<std::vector<std::string>> commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string prompt = "$ anyattn ";
    if (line.rfind(prompt, 0) != 0) continue;
    std::istringstream words(line.substr(prompt.size(), line.find('#') - prompt.size()));
    commands.emplace_back();
    for (std::string word; words >> word;) commands.back().push_back(word);
  }
  return commands;
}

}  // namespace

TEST_CASE("readme_example_runs_as_written") {
  const std::string readme = read_file(ANYATTN_SOURCE_DIR "/README.md");
  TempDir dir;
  const std::string config = dir.write("attention.yaml", block_of(readme, "yaml"));
  std::filesystem::create_directory_symlink(ANYATTN_PLUGIN_DIR, dir / "plugins");
  const auto commands = commands_of(readme);
  REQUIRE(!commands.empty());
  for (std::vector<std::string> words : commands) {
    for (std::string& word : words) {
      if (word == "attention.yaml") word = config;
    }
    CAPTURE(words[0]);
    const Result result = cli(words);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.out != "");
  }
}
