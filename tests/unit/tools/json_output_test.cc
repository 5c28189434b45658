// SPDX-License-Identifier: Apache-2.0
// --json: what stays on the terminal, what is written, what is refused.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "common/failure.h"
#include "common/json_output.h"
#include "temp_dir.h"

using namespace anyattn::tools;
using anyattn::testing::TempDir;

namespace {

std::string refusal(const std::string& file) {
  try {
    JsonOutput output({.wanted = true, .file = file});
  } catch (const Failure& failure) {
    CHECK(failure.code() == kExitUsage);
    return failure.what();
  }
  return "";
}

}  // namespace

TEST_CASE("json_alone_takes_standard_output_from_the_table") {
  CHECK(JsonOutput({}).table());
  CHECK_FALSE(JsonOutput({.wanted = true, .file = ""}).table());
  TempDir dir;
  CHECK(JsonOutput({.wanted = true, .file = dir / "out.json"}).table());
}

TEST_CASE("json_file_is_written_and_written_over") {
  TempDir dir;
  const std::string file = dir / "out.json";
  JsonOutput({.wanted = true, .file = file}).write({{"b", 1}, {"a", 2}});
  CHECK(anyattn::testing::read_file(file) == "{\n  \"b\": 1,\n  \"a\": 2\n}\n");
  JsonOutput({.wanted = true, .file = file}).write({{"c", 3}});
  CHECK(anyattn::testing::read_file(file) == "{\n  \"c\": 3\n}\n");
}

TEST_CASE("json_file_that_holds_something_else_is_refused_and_kept") {
  TempDir dir;
  const std::string file = dir.write("weights.bin", "not json");
  CHECK(refusal(file).find("holds no JSON") != std::string::npos);
  CHECK(anyattn::testing::read_file(file) == "not json");
  CHECK(refusal(dir.write("half.json", "{\"a\": 1")).find("holds no JSON") != std::string::npos);
  CHECK(refusal(dir.write("fresh.json", "")) == "");  // nothing to lose, as mktemp leaves it
  CHECK(refusal(dir / ".").find("a folder") != std::string::npos);
  CHECK(refusal(dir / "absent/out.json").find("no such folder") != std::string::npos);
}

TEST_CASE("json_replaces_bytes_that_are_no_utf8") {
  TempDir dir;
  const std::string file = dir / "out.json";
  JsonOutput({.wanted = true, .file = file}).write({{"text", "\xff"}});
  CHECK(nlohmann::json::parse(anyattn::testing::read_file(file))["text"] == "\xEF\xBF\xBD");
}
