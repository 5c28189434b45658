// SPDX-License-Identifier: Apache-2.0
// Selection locks as files: what a whole one says, and the sentence for each that is not.
#include <doctest/doctest.h>

#include "config/lock.h"
#include "unit/config/config_fixture.h"

using anyattn::config::Lock;
using anyattn::config::parse_lock;
using anyattn::config::read_lock;
using anyattn::test::holds;
using anyattn::test::refusal;
using anyattn::test::TempDir;

namespace {

std::string digits(char digit) { return std::string(64, digit); }

std::string entry(char problem, const std::string& chosen, const std::string& plugins, char reasons = 'b') {
  return "{\"problem\": \"" + digits(problem) + "\", \"chosen\": \"" + chosen + "\", \"plugins\": \"" + plugins +
         "\", \"reasons\": \"" + digits(reasons) + "\", \"model\": \"x/tiny\", \"layers\": \"full\", \"device\": \"cpu:0\"}";
}

std::string file_of(const std::string& entries) { return "{\"lock\": 1, \"selections\": [" + entries + "]}"; }

const std::string kPlugin = "org.anyattn.cpu " + digits('c');

}  // namespace

TEST_CASE("lock_file_is_read_whole") {
  const Lock lock = parse_lock(file_of(entry('1', "CPU_ATTN", kPlugin) + ",\n" + entry('2', "A, B", kPlugin + ", " + kPlugin) +
                                       ",\n" + entry('3', "C", "none")),
                               "l.json");
  CHECK(lock.file == "l.json");
  REQUIRE(lock.entries.size() == 3);
  CHECK(lock.entries.at(digits('1')).chosen == "CPU_ATTN");
  CHECK(lock.entries.at(digits('1')).plugins == kPlugin);
  CHECK(lock.entries.at(digits('1')).reasons == digits('b'));
  CHECK(lock.entries.at(digits('2')).chosen == "A, B");
  CHECK(parse_lock(file_of(""), "l.json").entries.empty());
  // Two models that ask the same: the same twice.
  CHECK(parse_lock(file_of(entry('1', "A", kPlugin) + "," + entry('1', "A", kPlugin)), "l.json").entries.size() == 1);
}

TEST_CASE("every_broken_lock_is_one_sentence_with_place_and_remedy") {
  const struct {
    std::string text;
    std::vector<std::string> parts;
  } cases[] = {
      {"", {"lock"}},
      {"{\"selections\": []}", {"lock"}},
      {"{\"lock\": 2, \"selections\": []}", {"2", "1"}},
      {"{\"lock\": 1}", {"selections"}},
      {"{\"lock\": 1, \"selections\": [", {"l.json:1"}},
      {"{\"lock\": 1, \"selections\": [], \"note\": 1}", {"note"}},
      {file_of("{\"problem\": \"12\", \"chosen\": \"A\", \"plugins\": \"none\", \"reasons\": \"" + digits('a') + "\"}"),
       {"selections[0].problem", "12"}},
      {file_of(entry('1', "cpu attn", kPlugin)), {"selections[0].chosen", "'cpu attn'", "allowed"}},
      {file_of(entry('1', "A, ", kPlugin)), {"selections[0].chosen", "''"}},
      {file_of(entry('1', "A, B", kPlugin)), {"selections[0].plugins", "of 2 plugins"}},
      {file_of(entry('1', "A", "org.anyattn.cpu 12")), {"selections[0].plugins", "of 1 plugin"}},
      {file_of(entry('1', "A", kPlugin) + "," + entry('1', "B", kPlugin)), {"selections[1]", "keep one"}},
  };
  for (const auto& one : cases) {
    const std::string said = refusal([&] { parse_lock(one.text, "l.json"); });
    CAPTURE(one.text);
    CAPTURE(said);
    CHECK(said.starts_with("l.json"));
    CHECK(holds(said, "anyattn lock"));
    CHECK(said.find('\n') == std::string::npos);
    for (const std::string& part : one.parts) CHECK(holds(said, part));
  }
  const TempDir folder;
  CHECK(holds(refusal([&] { read_lock((folder / "missing.json")); }), "missing.json"));
}
