// SPDX-License-Identifier: Apache-2.0
// bench --tiles on the plugin that has other cuts of a problem and on one that has none; the option by itself in explain.
#include <doctest/doctest.h>

#include <set>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

std::string config_with(const std::string& entries) {
  const std::string plugins = ANYATTN_PLUGIN_DIR;
  return "version: 1\nplugins:\n  search: [" + plugins + "/cpu, " + plugins + "/portable_cpu]\n" + entries;
}

Result bench_tiles(const TempDir& dir, const std::string& backend, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"bench",      "--tiles", "--config",   dir.write("config.yaml", config_with("")),
                                     "--device",   "cpu",     "--backend",  backend,
                                     "--dtype",    "float32", "--contexts", "64",
                                     "--phases",   "decode",  "--pairs",    "3",
                                     "--threads",  "1",       "--min-time", "0.0005",
                                     "--cold-mib", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli(arguments);
}

}  // namespace

TEST_CASE("bench_measures_a_backend_s_other_cuts_against_its_own_choice") {
  TempDir dir;
  const Result result = bench_tiles(dir, "PORTABLE_ATTN", {"--heads", "4/2/128,4/2/32", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const json answer = result.json();
  CHECK(answer["skipped"].empty());
  REQUIRE(answer["rows"].size() == 2);
  // Half the columns only where there are two pieces of 64; the least work of a program always.
  const std::vector<std::set<std::string>> wanted{
      {"half the columns", "four times the least work of a program", "16 times the least work of a program"},
      {"four times the least work of a program", "16 times the least work of a program"}};
  for (size_t i = 0; i < 2; ++i) {
    const json& row = answer["rows"][i];
    CHECK(row["backend"] == "PORTABLE_ATTN");
    CHECK(row["plugin"] == "org.anyattn.portable.cpu");
    CHECK(row["shape"] == "decode 1 x 64");
    CHECK(row["tiles"][0]["option"] == "auto");
    CHECK(row["tiles"][0]["kernels"] == "tiles of 16 rows x 64 keys");
    std::set<std::string> kernels;
    for (size_t n = 1; n < row["tiles"].size(); ++n) {
      CHECK(row["tiles"][n]["option"] == std::to_string(n - 1));
      kernels.insert(row["tiles"][n]["kernels"]);
    }
    CHECK(kernels == wanted[i]);
    for (const json& one : row["tiles"]) {
      CHECK(one["fastest_us"] > 0);
      CHECK(one["fastest_us"] <= one["median_us"]);
      CHECK(one["median_us"] <= one["slowest_us"]);
    }
  }
  const Result table = bench_tiles(dir, "PORTABLE_ATTN", {"--heads", "4/2/32"});
  CHECK(contains(table.out, "16 times the least work of a program"));
  CHECK(contains(table.out, "x, "));
}

TEST_CASE("bench_tiles_says_who_has_no_other_cuts") {
  TempDir dir;
  const Result result = bench_tiles(dir, "CPU_ATTN", {"--heads", "4/2/32"});
  CHECK(result.code == 1);
  // One piece of columns, never cut: what is batch invariant has one way on the host.
  CHECK(contains(bench_tiles(dir, "PORTABLE_ATTN", {"--heads", "4/2/32", "--batch-invariant"}).out,
                 "PORTABLE_ATTN of org.anyattn.portable.cpu cuts it in no other way"));
  CHECK(contains(result.out, "CPU_ATTN of org.anyattn.cpu cuts it in no other way"));
  CHECK(contains(result.err, "the option tiles, which the plugin does not read"));
  CHECK(bench_tiles(dir, "CPU_ATTN", {"--peers"}).code == 2);
}

TEST_CASE("option_tiles_is_refused_past_the_problem_s_last_cut_and_shown_by_explain") {
  TempDir dir;
  const auto explain = [&](const std::string& tiles) {
    const std::string entry = "  entries: [{id: org.anyattn.portable.cpu, options: {tiles: " + tiles + "}}]\n";
    return cli({"explain", "--config", dir.write("config.yaml", config_with(entry)), "--device", "cpu", "--backend",
                "PORTABLE_ATTN", "--num-q-heads", "4", "--num-kv-heads", "2", "--head-size", "128"});
  };
  CHECK(contains(explain("0").out, "kernels: half the columns"));
  for (const char* wrong : {"3", "-1", "64x64", "''", "99999999999999999999"}) {
    const Result refused = explain(wrong);
    CHECK(refused.code == 1);
    CHECK_MESSAGE(contains(refused.out, "allowed: auto | 0 to 2"), wrong);
  }
}
