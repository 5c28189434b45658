// SPDX-License-Identifier: Apache-2.0
#include "config/yaml_tree.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "unit/config/config_fixture.h"

using anyattn::config::parse_yaml;
using anyattn::config::YamlLimits;
using anyattn::config::YamlNode;
using anyattn::test::holds;
using anyattn::test::refusal;

namespace {

std::string refused(const std::string& text, const YamlLimits& limits = {}) {
  return refusal([&] { parse_yaml(text, "f.yaml", limits); });
}

}  // namespace

TEST_CASE("yaml_tree_refuses_what_the_parser_would_take_or_explain_badly") {
  struct Case {
    std::string text;
    std::string start;  // FILE:LINE:COLUMN: PATH
    std::string part;
  };
  const std::vector<Case> cases = {
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: a: ", "given twice, first in line 1"},
      {"x:\n  - {k: 1, k: 2}\n", "f.yaml:2:12: x[0].k: ", "given twice, first in line 2"},
      {"a: &x 1\n", "f.yaml:1:4: a: ", "anchors"},
      {"a: &x [1]\nb: 2\n", "f.yaml:1:4: a: ", "anchors"},
      {"a: *nope\n", "f.yaml:1:4: a: ", "the referenced anchor is not defined"},
      {"a: !!int 5\n", "f.yaml:1:4: a: ", "tag"},
      {"a: !local {x: 1}\n", "f.yaml:1:4: a: ", "tag"},
      {"- x\ny: 1\n", "f.yaml:2:1: ", "one document and nothing after it"},
      {"a: 1\n---\nb: 2\n", "f.yaml:2:1: ", "one document and nothing after it"},
      {"a: 1\n...\njunk\n", "f.yaml:3:1: ", "one document and nothing after it"},
      {"a: 1\n}\n", "f.yaml:2:1: ", "not YAML"},
      {"a:\n\tb: 1\n", "f.yaml:2:1: ", "a tab stands in the indentation"},
      {"a:\n  \tb: 1\n", "f.yaml:2:3: ", "a tab stands in the indentation"},
      {"%YAML 1.2\n---\na: 1\n", "f.yaml:1:1: ", "directives"},
      {"a: \"never closed\n", "f.yaml:3:1: a: ", "no closing quote"},
      {"a: 'never closed\nb: 1\n", "f.yaml:4:1: a: ", "no closing quote"},
      {"a: [1, 2\n", "f.yaml:3:1: ", "not YAML"},
      {"a: {b: 1\n", "f.yaml:3:1: ", "not YAML"},
      {"a: b: c\n", "f.yaml:1:5: ", "not YAML"},
      {"? [a]\n: 1\n", "f.yaml:1:3: ", "keys are text"},
      {": 1\n", "f.yaml:1:1: ", "a key is missing"},
      {"a: \"x\\0y\"\n", "f.yaml:1:4: a: ", "control character 0x00"},
      {"a: 1\nb: \x01\n", "f.yaml:2:4: ", "control character 0x01"},
      {"a: 1\nb: \xff\n", "f.yaml:2:4: ", "0xff is not UTF-8"},
      {"a: \xc0\xaf\n", "f.yaml:1:4: ", "0xc0 is not UTF-8"},
      {"a: \xed\xa0\x80\n", "f.yaml:1:4: ", "0xed is not UTF-8"},
      {"a: \xe2\x82", "f.yaml:1:4: ", "0xe2 is not UTF-8"},
      {std::string("a: 1\0\n", 6), "f.yaml:1:5: ", "control character 0x00"},
  };
  for (const Case& c : cases) {
    const std::string text = refused(c.text);
    CAPTURE(c.text);
    CAPTURE(text);
    CHECK(text.rfind(c.start, 0) == 0);
    CHECK(holds(text, c.part));
  }
}

TEST_CASE("yaml_tree_keeps_text_kinds_and_places") {
  const YamlNode root =
      parse_yaml("\xef\xbb\xbf# first\nv: 1.10\r\no: 010\nq: 'no'\nn: ~\nl: [a, {b: c}]\nlate:\nu: \"t\xc3\xa4g\"\n", "f.yaml")
          .root;
  REQUIRE(root.kind == YamlNode::Kind::kMapping);
  CHECK(root.find("v")->text == "1.10");
  CHECK(root.find("o")->text == "010");
  CHECK_FALSE(root.find("o")->quoted);
  CHECK(root.find("q")->text == "no");
  CHECK(root.find("q")->quoted);
  CHECK(root.find("n")->kind == YamlNode::Kind::kNull);
  CHECK(root.find("l")->items[1].find("b")->text == "c");
  CHECK(root.find("l")->items[1].find("b")->mark.line == 6);
  CHECK(root.find("l")->items[1].find("b")->mark.column == 12);
  CHECK(root.find("late")->kind == YamlNode::Kind::kNull);
  CHECK(root.find("late")->mark.line == 7);
  CHECK(root.find("u")->text == "t\xc3\xa4g");
  CHECK(root.find("missing") == nullptr);
  CHECK(root.find("v")->find("x") == nullptr);
  CHECK(parse_yaml("", "f.yaml").root.kind == YamlNode::Kind::kNull);
  CHECK(parse_yaml("# only a comment", "f.yaml").root.kind == YamlNode::Kind::kNull);
  CHECK(parse_yaml("a: 1\n...\n", "f.yaml").root.find("a")->text == "1");
}

TEST_CASE("yaml_tree_bounds_bytes_nodes_and_depth") {
  YamlLimits limits;
  limits.bytes = 100;
  limits.nodes = 10;
  limits.depth = 3;
  CHECK(refused(std::string(100, '#'), limits).empty());
  CHECK(refused(std::string(101, '#'), limits) == "f.yaml: is larger than 100 bytes, the most a file may have");
  CHECK(refused("[1,2,3,4,5,6,7,8,9]", limits).empty());
  CHECK(holds(refused("[1,2,3,4,5,6,7,8,9,10]", limits), "f.yaml:1:20: [9]: more than 10 keys and values"));
  CHECK(refused("a: [[1]]", limits).empty());
  CHECK(refused("a: [[[1]]]", limits) == "f.yaml:1:6: a[0][0]: nested deeper than 3 levels, the most a file may have");
}

TEST_CASE("yaml_tree_refuses_hostile_files_at_once") {
  const std::string deep = std::string(20000, '[') + std::string(20000, ']');
  CHECK(holds(refused(deep), "f.yaml:1:17: "));
  CHECK(holds(refused(deep), "nested deeper than 16 levels"));
  std::string braces = "1";
  for (int i = 0; i < 5000; ++i) braces = "{a: " + braces + "}";
  CHECK(holds(refused(braces), "nested deeper than 16 levels"));
  CHECK(holds(refused(std::string(20000, '[')), "f.yaml:1:1: "));
  CHECK(holds(refused(std::string(20000, '{')), "f.yaml:1:1: "));

  std::string bomb = "a0: &a0 [x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before + "]\n";
  }
  CHECK(holds(refused(bomb), "f.yaml:1:5: a0: anchors (&name) are not read"));

  std::string many;
  for (int i = 0; i < 60000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  CHECK(holds(refused(many), "more than 50000 keys and values"));
  std::string equal;
  for (int i = 0; i < 24000; ++i) equal += "k: 1\n";
  CHECK(holds(refused(equal), "f.yaml:2:1: k: the key is given twice, first in line 1"));
}

TEST_CASE("yaml_tree_reads_regular_files_only") {
  const anyattn::test::TempDir folder;
  const std::string pipe = (folder / "pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  YamlLimits limits;
  limits.bytes = 10;
  const auto read = [&](const std::string& path) { return refusal([&] { anyattn::config::read_yaml(path, limits); }); };
  CHECK(holds(read((folder / "missing.yaml")), "missing.yaml: cannot be opened: No such file"));
  CHECK(holds(read((folder / "")), "is a folder"));
  CHECK(holds(read(pipe), "is no regular file"));
  CHECK(holds(read(folder.write("large.yaml", "a: 123456789\n")), "is larger than 10 bytes"));
  CHECK(read(folder.write("small.yaml", "a: 1\n")).empty());
}

TEST_CASE("yaml_tree_cuts_and_escapes_what_it_quotes") {
  CHECK(anyattn::config::quote("a\nb\x01\"\\") == "\"a\\nb\\x01\\\"\\\\\"");
  CHECK(anyattn::config::quote(std::string(100, 'x')) == "\"" + std::string(60, 'x') + "...\"");
  CHECK(anyattn::config::join_path("a", "b ") == "a.\"b \"");
  CHECK(anyattn::config::join_path("a", 3) == "a[3]");
}
