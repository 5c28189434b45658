// SPDX-License-Identifier: Apache-2.0
// How the command is asked: help, mistakes, exit codes, --json, terminals.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;

namespace {

const std::vector<std::string> kVerbs = {"list",  "explain", "run",    "generate", "check",
                                         "bench", "config",  "doctor", "warm",     "tune"};

}  // namespace

TEST_CASE("help_of_every_verb_has_an_example_and_exit_codes") {
  const Result top = cli({"--help"});
  CHECK(top.code == 0);
  for (const std::string& verb : kVerbs) {
    CAPTURE(verb);
    CHECK(contains(top.out, verb));
    const Result help = cli({verb, "--help"});
    CHECK(help.code == 0);
    CHECK(help.err == "");
    CHECK(contains(help.out, "anyattn " + verb));
    CHECK(contains(help.out, "--config FILE"));
    CHECK(contains(help.out, "--json [FILE]"));
    CHECK(contains(help.out, "130  Ctrl-C"));
  }
  CHECK(contains(cli({"--version"}).out, "0."));
}

TEST_CASE("mistakes_on_the_command_line_are_one_line_and_exit_2") {
  const struct {
    std::vector<std::string> arguments;
    const char* text;
  } mistakes[] = {
      {{"lst"}, "did you mean 'list'?"},
      {{"frobnicate"}, "verbs: list"},
      {{"list", "--jsn"}, "did you mean '--json'?"},
      {{"explain", "--hed-size", "8"}, "did you mean '--head-size'?"},
      {{"list", "extra"}, "unexpected argument 'extra'"},
      {{"explain"}, "name a model"},
      {{"explain", "--head-size", "eight"}, "--head-size eight"},
      {{"explain", "--head-size", "64", "--phase", "later"}, "allowed: both, prefill, decode"},
      {{"explain", "--head-size", "64", "--cp-rank", "1"}, "--cp-decode or --cp-prefill"},
      {{"explain", "--head-size", "64", "--device", "tpu"}, "allowed: auto, cpu, cuda:N"},
      {{"explain", "--head-size", "64", "--dtype", "float17"}, "float17"},
      {{"explain", "--model", "Llama-3.1-8B", "--head-size", "64"}, "exclude each other"},
      {{"explain", "--model", "No-Such-Model-9000B"}, "No-Such-Model-9000B"},
      {{"generate", "--checkpoint", "x"}, "--tokenizer"},
      {{"generate", "--checkpoint", "/nonexistent", "--tokenizer", "/nonexistent"}, "/nonexistent"},
      {{"list", "--config", "/nonexistent/config.yaml"}, "/nonexistent/config.yaml"},
      {{"bench", "--compare", "before.json"}, "1 file given; wanted: two"},
      {{"bench", "--compare", "/nonexistent/a", "/nonexistent/b"}, "--compare /nonexistent/a: No such file"},
      {{"bench", "--html", "/nonexistent/page.html"}, "no such folder: /nonexistent"},
      {{"bench", "--min-time", "-1"}, "-1: allowed: numbers above 0"},
      {{"bench", "--model", "DeepSeek-V3", "--phases", "chunk"}, "MLA has no such row"},
      {{"bundle", "build", "/nonexistent"}, "/nonexistent: no such folder"},
      {{"bundle", "build", ".", "--driver", "new"}, "--driver: Value new not in range"},
      {{"key", "export", "/dev/null"}, "/dev/null: it holds no"},
      {{"new-plugin", "acme", "/nonexistent/x", "--id", "a\"b"}, "--id a\"b: allowed: letters"},
      {{"new-plugin", std::string(60, 'a'), "/nonexistent/x"}, "59 characters at most"},
      {{"check", "CPU_ATTN", "--device", "hip:0"}, "no backend 'CPU_ATTN' for hip"},
      {{"explain", "--device", "intel:0"}, "intel:0: Intel GPUs are not supported: allowed: auto, cpu, cuda:N, hip:N"},
      {{"explain", "--device", "cuda:x"}, "cuda:x: allowed: auto, cpu, cuda:N, hip:N"},
  };
  for (const auto& mistake : mistakes) {
    const Result result = cli(mistake.arguments);
    CAPTURE(mistake.text);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    CHECK(contains(result.err, mistake.text));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
}

TEST_CASE("help_of_verbs_that_read_no_configuration_has_an_example") {
  for (const std::string verb : {"new-plugin", "verdicts", "bundle", "key", "lock"}) {
    const Result help = cli({verb, "--help"});
    CAPTURE(verb);
    CHECK(help.code == 0);
    CHECK(contains(help.out, "  anyattn " + verb));
    CHECK(contains(help.out, "130  Ctrl-C"));
    CHECK(contains(cli({"--help"}).out, verb));
  }
}

TEST_CASE("a_folder_without_plugins_is_named_as_the_cause") {
  TempDir dir;
  std::filesystem::create_directory(dir / "plugins");
  const std::string config = dir.write("config.yaml", "version: 1\n");
  const Result chosen = cli({"explain", "--config", config, "--head-size", "64", "--device", "cpu"});
  CHECK(chosen.code == 1);
  CHECK(contains(chosen.out, "name its folder in plugins.search"));
  CHECK(contains(cli({"list", "--config", config}).out, "no backend was found in the folders of plugins.search"));
  const std::string strict = dir.write("strict.yaml", cpu_config() + "trust: {level: hash}\n");
  CHECK(contains(cli({"list", "--config", strict}).out, "every plugin that was found is skipped"));
  const Result refused = cli({"explain", "--config", strict, "--head-size", "64", "--device", "cpu"});
  CHECK(contains(refused.out, "no entry of plugins.entries pins its content"));
  CHECK(!contains(refused.out, "no plugin was found at all"));
  const Result warmed = cli({"warm", "--config", config, "--model", "Llama-3.2-1B", "--arch", "sm_90"});
  CHECK(warmed.code == 1);
  CHECK(contains(warmed.err, "org.anyattn.portable.cuda, which compiles for it, is in no folder of plugins.search"));
}

TEST_CASE("no_verb_prints_the_help_and_exits_2") {
  const Result result = cli({});
  CHECK(result.code == 2);
  CHECK(contains(result.err, "explain"));
}

TEST_CASE("json_alone_is_all_of_standard_output") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  for (const char* verb : {"list", "config", "doctor"}) {
    CAPTURE(verb);
    CHECK(cli({verb, "--config", config, "--json"}).json().is_object());
    CHECK(cli({verb, "--json", "--config", config}).json().is_object());
  }
}

TEST_CASE("json_with_a_file_keeps_the_table") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config()), file = dir / "list.json";
  for (int again = 0; again < 2; ++again) {
    const Result result = cli({"list", "--config", config, "--json", file});
    CHECK(result.code == 0);
    CHECK(contains(result.out, "CPU_ATTN"));
    CHECK(nlohmann::json::parse(read_file(file)).contains("backends"));
  }
  const Result refused = cli({"list", "--json", config});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "holds no JSON"));
  CHECK(read_file(config) == cpu_config());
}

TEST_CASE("colours_appear_on_a_terminal_only") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result piped = cli({"list", "--config", config});
  CHECK(piped.out.find('\x1b') == std::string::npos);
  const Result shown = cli_on_terminal({"list", "--config", config}, 60);
  CHECK(shown.out.find("\x1b[1m") != std::string::npos);
}

TEST_CASE("a_later_flag_overrules_an_earlier_one") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const Result result = cli({"explain", "--config", "/nonexistent", "--head-size", "7", "--config", config, "--head-size", "64",
                             "--device", "cpu", "--json"});
  CHECK(result.code == 0);
  CHECK(result.json()["layers"][0]["problem"]["head_size"] == 64);
}

TEST_CASE("ctrl_c_gives_the_report_so_far_and_130") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config());
  const std::vector<std::vector<std::string>> commands = {
      {"check", "CPU_ATTN"},
      {"bench", "--device", "cpu", "--min-time", "0.01", "--cold-mib", "16"},
      {"run", "--model", "Llama-3.1-8B", "--trace", "builtin:chat", "--layers", "1", "--requests", "30", "--device", "cpu"}};
  for (std::vector<std::string> command : commands) {
    CAPTURE(command[0]);
    command.insert(command.end(), {"--config", config, "--json"});
    const Result result = cli_interrupted(command);
    CHECK(result.code == 130);
    CHECK(result.json().is_object());
  }
}
