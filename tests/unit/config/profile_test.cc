// SPDX-License-Identifier: Apache-2.0
// Profiles as files: what a whole one says, and the sentence for each that is not.
#include <doctest/doctest.h>

#include "anyattn/types.h"
#include "config/profile.h"
#include "unit/config/config_fixture.h"

using anyattn::config::parse_profile;
using anyattn::config::Profile;
using anyattn::config::read_profile;
using anyattn::test::holds;
using anyattn::test::refusal;
using anyattn::test::TempDir;

namespace {

const std::string kDigits(64, 'a');

// JSON, as `anyattn tune` writes it.
std::string whole() {
  return R"({
  "profile": 1, "anyattn": "0.1.0", "date": "2026-01-02 03:04 UTC", "threads": 2, "rounds": 9,
  "device": {"kind": "cpu", "name": "A Processor: 2 GHz", "architecture": "x86-64-v4", "num_multiprocessors": 2, "driver_version": 0},
  "plugins": [{"id": "org.anyattn.cpu", "version": "0.1.0", "content": ")" +
         kDigits + R"("}],
  "entries": [{"problem": ")" +
         kDigits + R"(", "layers": "tiny full", "shapes": [
    {"shape": "decode 1 x 64", "times": [
      {"backend": "CPU_ATTN", "fastest_us": 1.5, "median_us": 2.0, "slowest_us": 1000000.0},
      {"backend": "PORTABLE_ATTN", "fastest_us": 3, "median_us": 3, "slowest_us": 3}]}]}]
})";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = whole();
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("profile_file_is_read_whole") {
  const Profile profile = parse_profile(whole(), "p.json");
  CHECK(profile.file == "p.json");
  CHECK(profile.date == "2026-01-02 03:04 UTC");
  CHECK(profile.device.kind == ANYATTN_DEVICE_CPU);
  CHECK(profile.device.name == "A Processor: 2 GHz");
  CHECK(profile.device.architecture == "x86-64-v4");
  CHECK(profile.device.num_multiprocessors == 2);
  CHECK(profile.device.driver_version == 0);
  REQUIRE(profile.plugins.size() == 1);
  CHECK(profile.plugins[0].content == kDigits);
  REQUIRE(profile.entries.count(kDigits) == 1);
  const Profile::Shape& shape = profile.entries.at(kDigits).shapes.at(0);
  CHECK(shape.text == "decode 1 x 64");
  CHECK(shape.times.at("CPU_ATTN").fastest_us == 1.5);
  CHECK(shape.times.at("CPU_ATTN").slowest_us == 1e6);
  CHECK(shape.times.at("PORTABLE_ATTN").median_us == 3);
}

TEST_CASE("profile_file_that_is_wrong_is_one_sentence_with_the_remedy") {
  const struct {
    std::string text;
    std::vector<const char*> parts;
  } mistakes[] = {
      {"", {"empty", "profile: 1"}},
      {whole().substr(0, whole().size() / 2), {"p.json:"}},
      {with("\"profile\": 1", "\"profile\": 2"), {"profile", "2", "1"}},
      {with("\"rounds\"", "\"ronds\""), {"unknown key", "did you mean rounds?"}},
      {with("\"median_us\": 2.0", "\"median\": 2.0"), {"unknown key", "median_us"}},
      {with("\"median_us\": 2.0, ", ""), {"median_us", "is missing"}},
      {with("\"median_us\": 2.0", "\"median_us\": 1.0"), {"fastest_us 1.5, median_us 1", "in this order"}},
      {with("\"fastest_us\": 1.5", "\"fastest_us\": 0"), {"above 0"}},
      {with("\"fastest_us\": 1.5", "\"fastest_us\": fast"), {"fastest_us", "wanted: a number"}},
      {with("\"PORTABLE_ATTN\"", "\"CPU_ATTN\""), {"CPU_ATTN has times already"}},
      {with("\"cpu\"", "\"tpu\""), {"device.kind", "allowed: cpu, cuda, hip"}},
      {with("\"content\": \"aaa", "\"content\": \"xyz"), {"64 hexadecimal digits"}},
  };
  for (const auto& mistake : mistakes) {
    const std::string said = refusal([&] { parse_profile(mistake.text, "p.json"); });
    CAPTURE(mistake.text);
    CAPTURE(said);
    for (const char* part : mistake.parts) CHECK(holds(said, part));
    CHECK(holds(said, "anyattn tune"));
    CHECK(said.find('\n') == std::string::npos);
  }
}

TEST_CASE("profile_file_that_is_not_there_is_an_error") {
  const TempDir folder;
  const std::string file = (folder / "none.json");
  const std::string said = refusal([&] { read_profile(file); });
  CHECK(holds(said, file));
  CHECK(holds(said, "selection.profile"));
  CHECK(holds(refusal([&] { read_profile((folder / "")); }), (folder / "")));
}

TEST_CASE("profile_is_named_relative_to_the_configuration") {
  const TempDir folder;
  CHECK(anyattn::test::load_text(folder, "selection: {profile: p.json}\n").profile == (folder / "p.json"));
  CHECK(anyattn::test::load_text(folder, "version: 1\n").profile == "");
}
