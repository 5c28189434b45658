// SPDX-License-Identifier: Apache-2.0
// bench on grids that are small enough for a test: which rows there are and that their figures hang together.
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

// A short bench on the CPU.
Result bench(const TempDir& dir, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"bench",      "--config", dir.write("config.yaml", cpu_config()),
                                        "--device",   "cpu",      "--min-time",
                                        "0.0005",     "--pairs",  "3",
                                        "--cold-mib", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli(arguments);
}

}  // namespace

TEST_CASE("bench_reports_own_cost_limits_and_every_row_of_the_grid") {
  TempDir dir;
  const Result result = bench(dir, {"--heads", "4/2/32,2/1/16", "--contexts", "64,100", "--prompts", "33", "--batches", "1,3",
                                    "--caches", "cold,hot", "--threads", "1,2", "--dtype", "float32", "--json"});
  CHECK(result.code == 0);
  const json figures = result.json();
  REQUIRE(figures["own_cost"].size() == 3);
  for (const json& cost : figures["own_cost"]) CHECK(cost["through_runtime_ns"] > 0);
  for (const json& limit : figures["limits"]) CHECK(limit["rate"] > 0);
  CHECK(figures["skipped"].empty());
  // Two heads, two batches: two contexts cold and hot, one prompt; on one thread and on two.
  REQUIRE(figures["rows"].size() == 2 * 2 * (2 * 2 + 1) * 2);
  for (const json& row : figures["rows"]) {
    CHECK(row["backend"] == "CPU_ATTN");
    CHECK(row["forward_us"] > 0);
    CHECK(row["fastest_us"] <= row["forward_us"]);
    CHECK(row["shares"]["f32_fma"]["share"] > 0);
    const bool decode = row["phase"] == "decode";
    CHECK(row["shares"].contains(row["cold"] ? "dram_read" : "cached_read") == decode);
    // Keys and values in float32, each once.
    const double bytes = row["num_reqs"].get<double>() * row["seq_len"].get<double>() * row["bytes_a_key"].get<double>();
    CHECK(row["gb_per_s"].get<double>() * row["forward_us"].get<double>() * 1e3 == doctest::Approx(bytes));
    if (row["heads"] == "4/2/32") CHECK(row["bytes_a_key"] == 2 * 2 * 32 * 4);
  }
}

TEST_CASE("bench_has_a_table_of_120_columns_and_a_wide_one") {
  TempDir dir;
  const std::vector<std::string> rows{"--heads", "32/8/64", "--contexts", "100", "--prompts", "33", "--threads", "1,2"};
  const std::string narrow = bench(dir, rows).out;
  const auto has_all = [](const std::string& table) { return contains(table, "of f32") && contains(table, "ns a key"); };
  CAPTURE(narrow);
  const size_t begin = narrow.find("heads 32/8/64; q bfloat16; cache bfloat16; backend CPU_ATTN\n");
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(narrow.substr(begin));
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 120);
  CHECK(contains(narrow, "of read or copy"));
  CHECK_FALSE(has_all(narrow));
  CHECK_FALSE(contains(narrow, "host, us"));  // of devices
  std::vector<std::string> all = rows;
  all.emplace_back("--wide");
  const std::string wide = bench(dir, all).out;
  CHECK(has_all(wide));
  CHECK(contains(wide, "32/8/64  bfloat16  bfloat16"));
}

TEST_CASE("bench_times_a_device_by_replays_of_a_captured_graph") {
  TempDir dir;
  const std::string config =
      dir.write("pretend.yaml", "version: 1\nplugins: {search: [" + std::string(ANYATTN_TEST_DIR) + "/pretend]}\n");
  const std::string page = dir / "page.html";
  const std::vector<std::string> small{"--min-time", "0.0005", "--pairs", "2", "--cold-mib", "1", "--config", config};
  std::vector<std::string> arguments{"bench",  "--device",  "cuda:0", "--heads", "4/2/32", "--contexts",
                                     "64,100", "--prompts", "33",     "--html",  page,     "--json"};
  arguments.insert(arguments.end(), small.begin(), small.end());
  const Result result = cli(arguments);
  CAPTURE(result.err);
  CHECK(result.code == 0);
  const json figures = result.json();
  REQUIRE(figures["limits"].size() == 1);
  CHECK(figures["limits"][0]["limit"] == "device_copy");
  CHECK(figures["limits"][0]["rate"] > 0);
  REQUIRE(figures["rows"].size() == 3);
  for (const json& row : figures["rows"]) {
    CHECK(row["backend"] == "QUEUED_ATTN");
    CHECK(row["timed_by"] == "graph replays");
    CHECK(row["threads"] == 0);
    CHECK(row["host_us"] > 0);
    CHECK(row["forward_us"] > 0);
    CHECK(row["shares"].contains("device_copy") == (row["phase"] == "decode"));
  }
  CHECK(contains(read_file(page), "device_copy"));
}

TEST_CASE("bench_takes_the_provider_of_a_device_from_a_file") {
  TempDir dir;
  const auto with_provider = [&](const std::string& file) {
    return cli({"bench",
                "--device",
                "cuda:0",
                "--heads",
                "4/2/32",
                "--contexts",
                "64",
                "--phases",
                "decode",
                "--min-time",
                "0.0005",
                "--pairs",
                "2",
                "--cold-mib",
                "1",
                "--config",
                dir.write("cpu.yaml", cpu_config()),
                "--provider",
                file,
                "--json"});
  };
  const Result result = with_provider(std::string(ANYATTN_TEST_DIR) + "/pretend/anyattn_pretend.so");
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(result.json()["rows"][0]["timed_by"] == "graph replays");

  CHECK(with_provider("nowhere.so").code == 2);
  const Result alone = with_provider(dir.write("alone.so", ""));
  CHECK(alone.code == 2);
  CHECK(contains(alone.err, "sidecar"));
}

TEST_CASE("bench_takes_the_layers_of_a_model_and_says_what_nobody_takes") {
  TempDir dir;
  const Result result =
      bench(dir, {"--model", "gemma-3-1b-it", "--phases", "decode,chunk", "--contexts", "600", "--threads", "1",
                  "--kv-cache-dtype", "auto,no_such_format", "--batch-invariant", "--shuffled", "--json"});
  CHECK(result.code == 0);
  const json figures = result.json();
  // Full and sliding layers, two phases, each also batch invariant.
  CHECK(figures["rows"].size() == 8);
  CHECK(figures["skipped"].size() == 8);
  for (const json& skipped : figures["skipped"]) CHECK(contains(skipped["reason"], "no_such_format"));
  for (const json& row : figures["rows"]) {
    // A batch-invariant row stands against the same one without.
    CHECK(row["against"].is_null() == !row["batch_invariant"]);
    const bool sliding = contains(row["heads"], "sliding");
    if (row["phase"] != "decode") continue;
    const double keys = row["forward_us"].get<double>() * 1e3 / row["ns_a_key"].get<double>();
    CHECK(keys == doctest::Approx(sliding ? 512 : 600));
  }
}

TEST_CASE("bench_refuses_what_it_cannot_read_with_one_sentence") {
  TempDir dir;
  const Result heads = bench(dir, {"--heads", "32/8"});
  CHECK(heads.code == 2);
  CHECK(contains(heads.err, "32/8/128"));
  const Result threads = bench(dir, {"--threads", "none"});
  CHECK(threads.code == 2);
  CHECK(contains(threads.err, "all"));
  CHECK(bench(dir, {"--model", "no-such-model"}).code == 2);
}

TEST_CASE("bench_decodes_and_prefills_mla_and_compares_two_files") {
  TempDir dir;
  const std::vector<std::string> grid = {"--model", "DeepSeek-V2-Lite", "--contexts", "100",   "--prompts",
                                         "20",      "--threads",        "1",          "--json"};
  const auto measured = [&](const char* name, std::vector<std::string> more) {
    const std::string file = dir / name;
    more.insert(more.begin(), grid.begin(), grid.end());
    more.push_back(file);
    CHECK(bench(dir, more).code == 0);
    return file;
  };
  const std::string before = measured("before.json", {}), after = measured("after.json", {});
  const Result result = bench(dir, {"--compare", before, after, "--json"});
  CHECK(result.code == 0);
  const json comparison = result.json();
  REQUIRE(comparison["rows"].size() == 2);
  for (const json& row : comparison["rows"]) {
    CHECK(contains(row["name"], "mla"));
    CHECK(row["time"].get<double>() == doctest::Approx(row["after_us"].get<double>() / row["before_us"].get<double>()));
  }
  CHECK(comparison["only_before"].empty());
  const Result wrong = bench(dir, {"--compare", before, dir.write("other.json", "{}")});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "other.json"));
}

TEST_CASE("bench_writes_a_page_that_needs_no_other_file") {
  TempDir dir;
  const std::string file = dir / "bench.html";
  const std::vector<std::string> grid = {"--heads", "2/1/16", "--contexts", "64,128", "--prompts", "20,40", "--threads", "1"};
  std::vector<std::string> with = grid;
  with.insert(with.end(), {"--html", file, "--json"});
  const Result result = bench(dir, with);
  CHECK(result.code == 0);
  CHECK(result.json()["machine"].contains("cpu isa"));
  const std::string page = read_file(file);
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  // Time and share of the limit for decode and for prefill, two points in each.
  CHECK(count("<svg ") == 4);
  CHECK(count("</svg>") == 4);
  CHECK(count("<circle ") == 8);
  CHECK(count("nan") == 0);
  for (const char* outside : {"src=", "href=", "url(", "@import"}) CHECK(count(outside) == 0);
  with[with.size() - 2] = dir.write("other.txt", "somebody's");
  const Result refused = bench(dir, with);
  CHECK(refused.code == 2);
  CHECK(read_file(dir / "other.txt") == "somebody's");
}

TEST_CASE("bench_sets_products_of_other_libraries_beside_its_rows") {
  TempDir dir;
  const auto built = [](const std::string& peer) {
    return std::filesystem::exists(std::string(ANYATTN_BINARY_DIR) + "/lib/anyattn/bench/peer_" + peer);
  };
  const Result result = bench(dir, {"--heads", "4/2/32", "--contexts", "64", "--prompts", "16", "--threads", "1", "--dtype",
                                    "float32,bfloat16", "--peers", "--json"});
  CHECK(result.code == 0);
  for (const json& row : result.json()["rows"]) {
    CHECK(row["peers"].contains("onednn") == built("onednn"));
    CHECK(row["peers"].contains("openblas") == (built("openblas") && row["dtype"] == "float32"));
    for (const json& peer : row["peers"]) CHECK(peer["scores_us"].get<double>() * peer["values_us"].get<double>() > 0);
  }
}
