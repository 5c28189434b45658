// SPDX-License-Identifier: Apache-2.0
// One backend for prefill and another for decode: only by rules, and only where both read the same blocks.
#include <doctest/doctest.h>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::config::Rule;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::plugin_for;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

Rule phase_rule(const std::string& phase, const std::string& backend, const std::string& origin) {
  Rule rule;
  rule.when.push_back({"phase", phase, {origin}});
  rule.backend = backend;
  rule.origin.text = origin;
  return rule;
}

FakePlugin with_layouts(const std::string& id, const std::string& name, std::vector<std::string> layouts) {
  FakePlugin plugin = plain_plugin(id, name);
  plugin.behaviour->layouts = std::move(layouts);
  return plugin;
}

}  // namespace

TEST_CASE("two_rules_give_two_backends_that_share_a_spec") {
  World world;
  world.add({with_layouts("org.d", "DECODER", {"NHD", "HND"}), with_layouts("org.p", "PREFILLER", {"HND"})});
  world.config.rules = {phase_rule("decode", "DECODER", "f:1"), phase_rule("prefill", "PREFILLER", "f:2")};
  const Decision decision = world.select(Problem());
  REQUIRE(decision.ok());
  REQUIRE(decision.choices.size() == 2);
  CHECK(decision.decode().backend.key.name == "DECODER");
  CHECK(decision.decode().phase == ANYATTN_PHASE_DECODE);
  CHECK(decision.prefill().backend.key.name == "PREFILLER");
  CHECK(decision.prefill().phase == ANYATTN_PHASE_PREFILL);
  CHECK(decision.origin == "decode: rule f:1; prefill: rule f:2");
  REQUIRE(decision.specs.size() == 1);
  CHECK(decision.specs[0].name() == "HND");
  CHECK(decision.problem.phase() == ANYATTN_PHASE_BOTH);
}

TEST_CASE("two_rules_without_a_common_spec_are_an_error") {
  World world;
  world.add({with_layouts("org.d", "DECODER", {"NHD"}), with_layouts("org.p", "PREFILLER", {"HND"})});
  world.config.rules = {phase_rule("decode", "DECODER", "f:1"), phase_rule("prefill", "PREFILLER", "f:2")};
  const Decision decision = world.select(Problem());
  CHECK(decision.error == Error::kNoCommonSpec);
  REQUIRE(decision.candidates.size() == 2);
  CHECK(decision.candidates[0].verdict == Verdict::kEligible);
  CHECK(decision.candidates[1].verdict == Verdict::kRefused);
  CHECK(decision.text.find(
            "backend PREFILLER (asked for by rule f:2) does not take this problem on cpu: kv_cache_spec PREFILLER, "
            "allowed: a spec that DECODER (decode by rule f:1) accepts too") != std::string::npos);
}

TEST_CASE("a_rule_for_one_phase_leaves_the_other_to_the_order_among_those_that_share_its_spec") {
  World world;
  world.add({with_layouts("org.a", "OWN_LAYOUT", {"NHD"}), with_layouts("org.b", "SHARES", {"HND"}),
             with_layouts("org.d", "DECODER", {"HND"})});
  world.config.order["cpu"] = {"OWN_LAYOUT", "SHARES", "DECODER"};
  SUBCASE("decode is named") {
    world.config.rules = {phase_rule("decode", "DECODER", "f:1")};
    const Decision decision = world.select(Problem());
    REQUIRE(decision.ok());
    CHECK(decision.decode().backend.key.name == "DECODER");
    CHECK(decision.prefill().backend.key.name == "SHARES");
    CHECK(decision.origin == "decode: rule f:1; prefill: order");
  }
  SUBCASE("prefill is named") {
    world.config.rules = {phase_rule("prefill", "DECODER", "f:1")};
    const Decision decision = world.select(Problem(), "", true);
    REQUIRE(decision.ok());
    CHECK(decision.decode().backend.key.name == "SHARES");
    CHECK(decision.prefill().backend.key.name == "DECODER");
    CHECK(decision.candidates.size() == 6);
  }
}

TEST_CASE("the_same_backend_for_both_phases_is_one_choice") {
  World world;
  world.add({plain_plugin("org.a", "A"), plain_plugin("org.b", "B")});
  SUBCASE("two rules of one name") {
    world.config.rules = {phase_rule("decode", "B", "f:1"), phase_rule("prefill", "B", "f:2")};
    CHECK(world.select(Problem()).origin == "rule f:1");
  }
  SUBCASE("a rule and the order") {
    world.config.order["cpu"] = {"A"};
    world.config.rules = {phase_rule("decode", "A", "f:1")};
    CHECK(world.select(Problem()).origin == "decode: rule f:1; prefill: order");
  }
  SUBCASE("a rule for both") { world.config.rules = {phase_rule("both", "B", "f:1")}; }
  const Decision decision = world.select(Problem());
  REQUIRE(decision.choices.size() == 1);
  CHECK(decision.choices[0].phase == ANYATTN_PHASE_BOTH);
}

TEST_CASE("a_must_above_the_rules_stands_for_both_phases") {
  World world;
  world.add({plain_plugin("org.a", "A"), plain_plugin("org.b", "B")});
  world.config.rules = {phase_rule("decode", "B", "f:1")};
  const Decision decision = world.select(Problem(), "A");
  REQUIRE(decision.choices.size() == 1);
  CHECK(decision.choices[0].backend.key.name == "A");
}

TEST_CASE("a_problem_of_one_phase_sees_the_rules_of_that_phase_only") {
  World world;
  world.add({plain_plugin("org.a", "A"), plain_plugin("org.b", "B")});
  world.config.order["cpu"] = {"A"};
  world.config.rules = {phase_rule("decode", "B", "f:1")};
  Problem prefill;
  prefill.c.phase = ANYATTN_PHASE_PREFILL;
  CHECK(world.select(prefill).decode().backend.key.name == "A");
  Problem decode;
  decode.c.phase = ANYATTN_PHASE_DECODE;
  CHECK(world.select(decode).decode().backend.key.name == "B");
}

TEST_CASE("two_backends_meet_at_a_block_size_that_both_take") {
  World world;
  FakePlugin decoder = plain_plugin("org.d", "DECODER");
  decoder.behaviour->preferred_block_size = 128;
  decoder.behaviour->block_size_multiple = 0;
  decoder.behaviour->block_sizes = {128, 64};
  FakePlugin prefiller = plain_plugin("org.p", "PREFILLER");
  prefiller.behaviour->preferred_block_size = 32;
  prefiller.behaviour->block_size_multiple = 0;
  prefiller.behaviour->block_sizes = {32, 64};
  world.add({decoder, prefiller});
  world.config.rules = {phase_rule("decode", "DECODER", "f:1"), phase_rule("prefill", "PREFILLER", "f:2")};
  const Decision decision = world.select(Problem());
  REQUIRE(decision.ok());
  CHECK(decision.problem.block_size() == 64);
  CHECK(decision.block_size_origin == "backend");
  CHECK(decision.decode().report.block_size == 64);
  CHECK(decision.prefill().report.block_size == 64);
}

TEST_CASE("ragged_keys_need_no_common_spec") {
  World world;
  world.add({plain_plugin("org.a", "A"), plain_plugin("org.b", "B")});
  world.config.rules = {phase_rule("decode", "A", "f:1"), phase_rule("prefill", "B", "f:2")};
  const Decision decision = world.select(Problem().ragged());
  REQUIRE(decision.ok());
  CHECK(decision.choices.size() == 2);
  CHECK(decision.specs.empty());
}

TEST_CASE("a_phase_that_its_backend_refuses_is_an_error_with_the_phase") {
  World world;
  world.add({plugin_for("org.d", "DECODER", "phase", "decode"), plain_plugin("org.a", "A")});
  world.config.rules = {phase_rule("prefill", "DECODER", "f:1")};
  const Decision decision = world.select(Problem());
  CHECK(decision.error == Error::kUnfit);
  CHECK(decision.text.find("phase prefill, allowed: decode") != std::string::npos);
}
