// SPDX-License-Identifier: Apache-2.0
// Backends that automatic choices pass over, and who may take over from one in use.
#include <doctest/doctest.h>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::cpu;
using anyattn::test::plain_plugin;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

Decision select(World& world, Request request, const anyattn_problem& problem) {
  const anyattn_device_facts facts = world.device(ANYATTN_DEVICE_CPU);
  request.problem = &problem;
  request.device = &facts;
  return anyattn::selector::select(request, world.config, *world.registry);
}

std::string chosen(const Decision& decision) { return decision.ok() ? decision.decode().backend.key.name : decision.text; }

}  // namespace

TEST_CASE("who_is_in_quarantine_is_passed_over_with_the_reason_but_not_when_named") {
  World world;
  world.add({plain_plugin("org.a", "A"), plain_plugin("org.b", "B")});
  Quarantine quarantine;
  Request request;
  request.quarantine = &quarantine;
  CHECK(chosen(select(world, request, Problem())) == "A");
  quarantine.add(cpu("A"), "failed 3 calls in a row");
  quarantine.add(cpu("A"), "another reason");
  CHECK(quarantine.version() == 1);
  const Decision decision = select(world, request, Problem());
  CHECK(chosen(decision) == "B");
  CHECK(decision.candidates[0].verdict == Verdict::kRefused);
  CHECK(describe(decision.candidates[0].reasons[0]) == "failed 3 calls in a row");
  request.backend = "A";
  CHECK(chosen(select(world, request, Problem())) == "A");
  quarantine.add(cpu("B"), "failed too");
  request.backend = "";
  const std::string nobody = chosen(select(world, request, Problem()));
  CHECK(nobody.find("failed 3 calls in a row") != std::string::npos);
  CHECK(nobody.find("failed too") != std::string::npos);
}

TEST_CASE("who_takes_over_keeps_the_cache_spec_and_what_else_was_promised") {
  World world;
  auto other_layout = plain_plugin("org.b", "B");
  other_layout.behaviour->layouts = {"NHD"};
  world.add({plain_plugin("org.a", "A"), other_layout, plain_plugin("org.c", "C"), plain_plugin("org.d", "D")});
  const Decision first = select(world, {}, Problem());
  REQUIRE(chosen(first) == "A");
  Request::Successor successor{cpu("A"), "fails", first.specs[0].digest(), {}};
  Request request;
  request.successor = &successor;
  const Decision next = select(world, request, Problem());
  CHECK(chosen(next) == "C");
  CHECK(describe(next.candidates[0].reasons[0]) == "fails");
  CHECK(next.candidates[1].reasons[0].field == "kv_cache_spec");
  int asked = 0;
  successor.check = [&](const anyattn_support_report&) -> std::optional<Reason> {
    if (++asked == 1) return Reason{0, "lse_bases", "", "", "not the first"};
    return std::nullopt;
  };
  CHECK(chosen(select(world, request, Problem())) == "D");
}

TEST_CASE("a_decision_is_made_anew_after_somebody_was_put_in_quarantine") {
  World world;
  world.add({plain_plugin("org.a", "A"), plain_plugin("org.b", "B")});
  Quarantine quarantine;
  DecisionCache cache;
  const Problem owner;
  const anyattn_problem problem = owner;
  const anyattn_device_facts facts = world.device(ANYATTN_DEVICE_CPU);
  Request request;
  request.problem = &problem;
  request.device = &facts;
  request.quarantine = &quarantine;
  CHECK(chosen(*cache.select(request, world.config, *world.registry)) == "A");
  quarantine.add(cpu("A"), "fails");
  CHECK(chosen(*cache.select(request, world.config, *world.registry)) == "B");
}
