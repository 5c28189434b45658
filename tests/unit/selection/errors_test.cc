// SPDX-License-Identifier: Apache-2.0
// A name that does not answer has one of four errors, whoever asked for it: unknown, not in this build, plugin failed, unfit.
#include <doctest/doctest.h>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::cpu;
using anyattn::test::cuda;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::plugin_for;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// FLASH_ATTN for cuda, one for the CPU that is picky, one that does not open, and a name only the order knows.
struct Mixed : World {
  Mixed() {
    FakePlugin flash = plain_plugin("org.flash", "FLASH_ATTN");
    flash.backends = {cuda("FLASH_ATTN")};
    FakePlugin broken = plain_plugin("com.broken", "BROKEN_ATTN");
    broken.fails = "libamx.so: undefined symbol: _tile_loadd";
    add({plugin_for("org.cpu", "CPU_ATTN", "head_size", "128"), flash, broken});
    config.order["cpu"] = {"CPU_ATTN", "PORTABLE_ATTN"};
  }
};

}  // namespace

TEST_CASE("an_unknown_name_is_told_the_closest_and_the_list") {
  Mixed world;
  const Decision near_miss = world.select(Problem(), "FLASH_ATN");
  CHECK(near_miss.error == Error::kUnknownName);
  CHECK(near_miss.status == ANYATTN_NOT_FOUND);
  CHECK(near_miss.text ==
        "selection: backend FLASH_ATN (asked for by call) is unknown: did you mean FLASH_ATTN?; known: BROKEN_ATTN, CPU_ATTN, "
        "FLASH_ATTN, PORTABLE_ATTN");
  const Decision invalid = world.select(Problem(), "INVALID");
  CHECK(invalid.error == Error::kUnknownName);
  CHECK(invalid.text ==
        "selection: backend INVALID (asked for by call) is unknown; known: BROKEN_ATTN, CPU_ATTN, FLASH_ATTN, "
        "PORTABLE_ATTN");
}

TEST_CASE("a_known_name_that_no_plugin_offers_is_not_in_this_build") {
  Mixed world;
  const Decision decision = world.select(Problem(), "PORTABLE_ATTN");
  CHECK(decision.error == Error::kNotInBuild);
  CHECK(decision.status == ANYATTN_NOT_FOUND);
  CHECK(decision.text == "selection: backend PORTABLE_ATTN (asked for by call) is known, but no plugin found offers it on cpu");
  REQUIRE(decision.candidates.size() == 1);
  CHECK(decision.candidates[0].stage == anyattn::registry::Stage::kDiscover);
  CHECK(decision.candidates[0].verdict == Verdict::kFailed);
}

TEST_CASE("a_name_of_another_device_says_where_it_is") {
  Mixed world;
  const Decision decision = world.select(Problem(), "FLASH_ATTN");
  CHECK(decision.error == Error::kNotInBuild);
  CHECK(contains(decision.text, "no plugin found offers it on cpu; it is there for cuda"));
}

TEST_CASE("a_name_whose_plugin_failed_says_the_loaders_cause_each_time") {
  Mixed world;
  for (int i = 0; i < 3; ++i) {
    const Decision decision = world.select(Problem(), "BROKEN_ATTN");
    CHECK(decision.error == Error::kPluginFailed);
    CHECK(decision.status == ANYATTN_INTERNAL);
    CHECK(decision.text ==
          "selection: backend BROKEN_ATTN (asked for by call) failed on cpu: plugin com.broken (/plugins/com.broken.so) failed "
          "at "
          "open: libamx.so: undefined symbol: _tile_loadd");
    CHECK(decision.candidates.at(0).stage == anyattn::registry::Stage::kOpen);
    CHECK(decision.candidates.at(0).plugin == "com.broken");
  }
}

TEST_CASE("a_known_name_that_does_not_fit_says_every_reason_and_the_request") {
  Mixed world;
  const Decision decision = world.select(Problem(), "CPU_ATTN");
  CHECK(decision.error == Error::kUnfit);
  CHECK(contains(decision.text, "head_size 64, allowed: 128; problem: attention_type decoder, key_source paged"));
}

TEST_CASE("files_skipped_before_their_names_were_learnt_are_mentioned_to_who_misses_a_name") {
  World world;
  world.registry->add_failure(
      {anyattn::registry::Stage::kInspect, ANYATTN_INTERNAL, "", "/plugins/cut.so", "the file is truncated", ""}, {});
  CHECK(contains(world.select(Problem(), "ACME").text,
                 "known: none; skipped: plugin /plugins/cut.so failed at inspect: the file is truncated"));
}

TEST_CASE("explain_lists_what_failed_beside_what_answered") {
  Mixed world;
  const Decision decision = world.select(Problem(), "", true);
  CHECK(decision.error == Error::kNobody);
  std::vector<std::string> lines;
  for (const Candidate& c : decision.candidates)
    lines.push_back(c.backend + " " + std::string(stage_name(c.stage)) + " " + std::string(verdict_name(c.verdict)));
  CHECK(lines ==
        std::vector<std::string>{"CPU_ATTN supports refused", "PORTABLE_ATTN discover failed", "BROKEN_ATTN open failed"});
  for (const Candidate& c : decision.candidates) CHECK_FALSE(c.reasons.empty());
}

TEST_CASE("layers_that_the_asked_for_backend_cannot_do_are_an_error_not_a_replacement") {
  World world;
  world.add({plugin_for("org.self", "SELF_ONLY", "key_source", "paged"), plain_plugin("org.any", "ANY")});
  world.config.backend = "SELF_ONLY";
  world.config.backend_origin.text = "flag";
  CHECK(world.select(Problem()).ok());
  const Decision cross = world.select(Problem().ragged());
  CHECK(cross.error == Error::kUnfit);
  CHECK(contains(cross.text, "backend SELF_ONLY (asked for by flag) does not take this problem on cpu: key_source ragged"));
}
