// SPDX-License-Identifier: Apache-2.0
// tune on a problem small enough for a test, and what its profile changes: explain, doctor, musts, a stale or broken file.
#include <doctest/doctest.h>

#include <algorithm>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::read_file;
using anyattn::testing::TempDir;
using nlohmann::json;

namespace {

constexpr const char* kTable =
    "models:\n- {id: x/tiny, kind: decoder, layers: 2, hidden: 128, context: 2048, dtype: float32, position: rope,\n"
    "   attention: [{n: 1, kind: full, q: 4, kv: 2, head: 32}, {n: 1, kind: sliding, q: 4, kv: 2, head: 32, window: 16}]}\n";

// Both CPU plugins, the one first that is meant to lose.
std::string config_with(const std::string& selection) {
  const std::string plugins = ANYATTN_PLUGIN_DIR;
  return "version: 1\nplugins:\n  search: [" + plugins + "/cpu, " + plugins + "/portable_cpu]\nselection:\n" + selection;
}

// One tuning for all that follows.
struct Tuned {
  TempDir dir;
  std::string models = dir.write("models.yaml", kTable), profile = dir / "profile.json";
  Result tuned = cli({"tune",
                      "--model",
                      "x/tiny",
                      "--models",
                      models,
                      "--config",
                      dir.write("plain.yaml", config_with("  order: {cpu: [PORTABLE_ATTN, CPU_ATTN]}\n")),
                      "--device",
                      "cpu",
                      "-o",
                      profile,
                      "--contexts",
                      "64",
                      "--prompts",
                      "48",
                      "--rounds",
                      "3",
                      "--min-time",
                      "0.0005",
                      "--cold-mib",
                      "1",
                      "--json"});

  Result explain(const std::string& config, const std::vector<std::string>& more = {"--json"}) {
    std::vector<std::string> arguments{"explain",  "--model", "x/tiny",   "--models", models,
                                       "--device", "cpu",     "--config", config};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli(arguments);
  }
};

// What the file would say had CPU_ATTN been faster in every round, or the rounds overlapped: the machine may be busy.
json with_times(json profile, double cpu_us, double portable_us) {
  for (json& entry : profile["entries"])
    for (json& shape : entry["shapes"])
      for (json& times : shape["times"])
        for (const char* key : {"fastest_us", "median_us", "slowest_us"})
          times[key] = times["backend"] == "CPU_ATTN" ? cpu_us : portable_us;
  return profile;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("tune_measures_every_backend_and_explain_uses_its_profile") {
  Tuned made;
  CAPTURE(made.tuned.err);
  REQUIRE(made.tuned.code == 0);
  const json answer = made.tuned.json();
  CHECK(answer["interrupted"] == false);
  CHECK(answer["file"] == made.profile);
  const json profile = json::parse(read_file(made.profile));
  CHECK(profile == answer["profile"]);
  CHECK(profile["device"]["kind"] == "cpu");
  REQUIRE(profile["plugins"].size() == 2);
  for (const json& plugin : profile["plugins"]) CHECK(plugin["content"].get<std::string>().size() == 64);
  REQUIRE(profile["entries"].size() == 2);
  for (const json& entry : profile["entries"]) {
    REQUIRE(entry["shapes"].size() == 2);
    CHECK(entry["shapes"][0]["shape"] == "decode 1 x 64");
    CHECK(entry["shapes"][1]["shape"] == "prefill 1 x 48");
    for (const json& shape : entry["shapes"]) {
      REQUIRE(shape["times"].size() == 2);
      CHECK(shape["times"][0]["backend"] == "PORTABLE_ATTN");  // the order's first
      for (const json& times : shape["times"]) CHECK(times["fastest_us"] <= times["slowest_us"]);
    }
  }

  const std::string order = "  order: {cpu: [PORTABLE_ATTN, CPU_ATTN]}\n  profile: profile.json\n";
  const std::string config = made.dir.write("config.yaml", config_with(order));
  // As it was written: whoever is chosen, the profile has times of it.
  const json plain = made.explain(config).json()["layers"][0];
  CHECK(plain["profile"]["found"] == true);
  CHECK(plain["profile"]["stale"].is_null());
  CHECK(plain["candidates"][0]["measured"].size() == 2);

  made.dir.write("profile.json", with_times(profile, 5, 9).dump());
  for (const json& layer : made.explain(config).json()["layers"]) {
    CHECK(layer["chosen"] == "CPU_ATTN");
    CHECK(layer["origin"] == "profile");
    CHECK(layer["candidates"][0]["measured"][0]["median_us"] == 5);
  }
  const Result table = made.explain(config, {});
  CHECK(contains(table.out, "decode 1 x 64: 5.0 us (5.0 to 5.0)"));
  CHECK(contains(table.out, "profile.json"));
  CHECK(contains(cli({"doctor", "--config", config}).out, "profile.json: 2 problems"));

  made.dir.write("profile.json", with_times(profile, 5, 5).dump());
  CHECK(made.explain(config).json()["layers"][0]["chosen"] == "PORTABLE_ATTN");
  CHECK(made.explain(config).json()["layers"][0]["origin"] == "order");

  made.dir.write("profile.json", with_times(profile, 5, 9).dump());
  CHECK(made.explain(config, {"--backend", "PORTABLE_ATTN", "--json"}).json()["layers"][0]["origin"] == "flag");

  json old = with_times(profile, 5, 9);
  old["plugins"][0]["content"] = std::string(64, '0');
  made.dir.write("profile.json", old.dump());
  const Result stale = made.explain(config);
  CHECK(stale.code == 0);
  CHECK(count(stale.err, "is ignored") == 1);  // once, of two kinds of layers
  for (const json& layer : stale.json()["layers"]) {
    CHECK(layer["chosen"] == "PORTABLE_ATTN");
    CHECK(contains(layer["profile"]["stale"], std::string(64, '0')));
  }
  CHECK(contains(made.explain(config, {}).out, "is ignored"));
  const Result doctor = cli({"doctor", "--config", config});
  CHECK(contains(doctor.out, "is ignored"));
  CHECK(contains(doctor.out, "anyattn tune"));
}

TEST_CASE("tune_s_profile_must_be_readable_where_it_is_named") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", config_with("  profile: profile.json\n"));
  const std::vector<std::string> explain{"explain", "--config", config, "--head-size", "64", "--device", "cpu"};
  const Result missing = cli(explain);
  CHECK(missing.code == 2);
  CHECK(contains(missing.err, "profile.json"));
  CHECK(contains(missing.err, "anyattn tune"));
  dir.write("profile.json", "{\"profile\": 1, \"device\": {\"kind\": ");
  const Result truncated = cli(explain);
  CHECK(truncated.code == 2);
  CHECK(count(truncated.err, "\n") == 1);
}

TEST_CASE("tune_measures_on_a_device_by_replays_of_captured_graphs") {
  TempDir dir;
  const std::string profile = dir / "profile.json",
                    config = dir.write("pretend.yaml", "version: 1\nplugins: {search: [" + std::string(ANYATTN_TEST_DIR) +
                                                           "/pretend]}\nselection: {order: {cuda: [QUEUED_TWICE_ATTN]}}\n");
  const Result result = cli({"tune",     "--model",    "x/tiny",     "--models",  dir.write("models.yaml", kTable),
                             "--config", config,       "--device",   "cuda:0",    "-o",
                             profile,    "--contexts", "64",         "--prompts", "33",
                             "--rounds", "3",          "--min-time", "0.0005",    "--cold-mib",
                             "1",        "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const json written = json::parse(read_file(profile));
  CHECK(written["device"]["architecture"] == "sm_75");
  CHECK(written["device"]["driver_version"] == 13000);
  REQUIRE(written["entries"].size() == 2);
  for (const json& entry : written["entries"])
    for (const json& shape : entry["shapes"]) {
      REQUIRE(shape["times"].size() == 2);
      CHECK(shape["times"][0]["backend"] == "QUEUED_TWICE_ATTN");  // the order's first
      CHECK(shape["times"][1]["backend"] == "QUEUED_ATTN");
      CHECK(shape["times"][1]["fastest_us"] < shape["times"][0]["fastest_us"]);
    }
}

TEST_CASE("tune_with_one_backend_writes_nothing") {
  TempDir dir;
  const std::string profile = dir / "profile.json";
  const Result result = cli({"tune", "--model", "x/tiny", "--models", dir.write("models.yaml", kTable), "--config",
                             dir.write("config.yaml", cpu_config()), "--device", "cpu", "-o", profile});
  CHECK(result.code == 1);
  CHECK(contains(result.out, "no other backend takes it"));
  CHECK(contains(result.out, "not written"));
  CHECK(read_file(profile) == "");
}
