// SPDX-License-Identifier: Apache-2.0
// What measured times change: who goes first, by which rounds, below which musts, and when they count no more.
#include <doctest/doctest.h>

#include "selector/profile.h"
#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::config::Profile;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

FakePlugin of_content(const std::string& id, const std::string& name) {
  FakePlugin plugin = plain_plugin(id, name);
  plugin.content = "content of " + id;
  return plugin;
}

// Three plugins in the order A, B, C, and a profile of them all without an entry.
class Three : public World {
 public:
  Three() {
    add({of_content("org.a", "A"), of_content("org.b", "B"), of_content("org.c", "C")});
    config.order["cpu"] = {"A", "B", "C"};
    profile.emplace().file = "profile.json";
    profile->device.kind = ANYATTN_DEVICE_CPU;
    profile->device.name = profile->device.architecture = "fake";
    for (const char* id : {"org.a", "org.b"}) profile->plugins.push_back({id, "1.0", std::string("content of ") + id});
    key = select(Problem(), "", true).profile.key;
  }

  // One shape more: fastest and slowest by backend.
  void measured(const std::map<std::string, std::pair<double, double>>& times) {
    Profile::Shape shape{"decode", {}};
    for (const auto& [name, range] : times) shape.times[name] = {range.first, (range.first + range.second) / 2, range.second};
    profile->entries[key].shapes.push_back(shape);
  }
  std::string order() {
    std::string names;
    for (const Candidate& candidate : select(Problem(), "", true).candidates) names += candidate.backend;
    return names;
  }

  std::string key;
};

}  // namespace

TEST_CASE("profile_puts_a_backend_first_that_was_faster_in_every_round") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  const Decision decision = world.select(Problem());
  CHECK(decision.decode().backend.key.name == "B");
  CHECK(decision.origin == "profile");
  CHECK(decision.profile.found);
  CHECK(decision.profile.file == "profile.json");
  REQUIRE(decision.candidates.size() == 1);
  REQUIRE(decision.candidates[0].measured.size() == 1);
  CHECK(decision.candidates[0].measured[0].shape == "decode");
  CHECK(decision.candidates[0].measured[0].times.median_us == 11);
  CHECK(decision.candidates[0].place == 1);
  CHECK(world.order() == "BAC");  // who was not measured keeps its place
}

TEST_CASE("profile_leaves_the_order_where_rounds_overlap") {
  Three world;
  world.measured({{"A", {10, 13}}, {"B", {9, 11}}});
  CHECK(world.order() == "ABC");
  CHECK(world.select(Problem()).origin == "order");
  CHECK(world.select(Problem()).candidates[0].measured.size() == 1);  // shown all the same
  // Touching ranges overlap: neither was faster.
  Three touching;
  touching.measured({{"A", {10, 13}}, {"B", {9, 10}}});
  CHECK(touching.order() == "ABC");
}

TEST_CASE("profile_wants_every_shape") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  world.measured({{"A", {20, 22}}, {"B", {21, 23}}});
  CHECK(world.order() == "ABC");
  Three partly;
  partly.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  partly.measured({{"A", {20, 22}}});
  CHECK(partly.order() == "ABC");
}

TEST_CASE("profile_moves_nobody_past_one_that_it_did_not_beat") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {5, 30}}, {"C", {10, 12}}});
  CHECK(world.order() == "ABC");
  Three sorted;
  sorted.measured({{"A", {30, 32}}, {"B", {20, 22}}, {"C", {10, 12}}});
  CHECK(sorted.order() == "CBA");
}

TEST_CASE("profile_moves_measured_backends_among_their_own_places") {
  Three world;
  world.measured({{"A", {20, 22}}, {"C", {10, 12}}});
  CHECK(world.order() == "CBA");
  // One that the order does not list goes first as well.
  world.config.order["cpu"] = {"A"};
  CHECK(world.order() == "CBA");
  CHECK(world.select(Problem()).origin == "profile");
}

TEST_CASE("profile_s_first_in_quarantine_is_passed_over") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  Quarantine quarantine;
  quarantine.add({"B", ANYATTN_DEVICE_CPU}, "it failed");
  const Problem asked;
  const anyattn_problem problem = asked;
  const anyattn_device_facts device = world.device(ANYATTN_DEVICE_CPU);
  Request request;
  request.problem = &problem;
  request.device = &device;
  request.profile = &*world.profile;
  request.quarantine = &quarantine;
  const Decision decision = select(request, world.config, *world.registry);
  CHECK(decision.decode().backend.key.name == "A");
  CHECK(decision.origin == "order");
}

TEST_CASE("profile_yields_to_every_must") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  CHECK(world.select(Problem(), "A").origin == "call");
  CHECK(world.select(Problem(), "A").decode().backend.key.name == "A");

  const std::pair<const char*, const char*> named[] = {
      {"flag", "flag"}, {"environment ANYATTN_BACKEND", "environment ANYATTN_BACKEND"}, {"F:3", "selection.backend F:3"}};
  for (const auto& [origin, said] : named) {
    world.config.backend = "A";
    world.config.backend_origin.text = origin;
    const Decision decision = world.select(Problem(), "", true);
    CHECK(decision.decode().backend.key.name == "A");
    CHECK(decision.origin == said);
  }
  world.config.backend.clear();
  world.config.rules = {{{{"head_size", "64", {"F:5"}}}, "A", {"F:5"}}};
  CHECK(world.select(Problem()).decode().backend.key.name == "A");
  CHECK(world.select(Problem()).origin == "rule F:5");
}

TEST_CASE("profile_counts_for_its_problem_only") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  Problem other;
  other.c.head_size = other.c.head_size_v = 128;
  const Decision decision = world.select(other);
  CHECK(decision.decode().backend.key.name == "A");
  CHECK_FALSE(decision.profile.found);
  CHECK(decision.profile.stale == "");
  // "auto" is what it comes to: the same question.
  Problem automatic;
  automatic.c.kv_cache_dtype = "auto";
  CHECK(world.select(automatic).origin == "profile");
}

TEST_CASE("profile_of_another_device_driver_or_plugin_is_ignored_with_a_reason") {
  const struct {
    void (*change)(Profile&);
    std::vector<const char*> parts;
  } changes[] = {
      {[](Profile& p) { p.device.name = "older"; }, {"device older", "now it is fake"}},
      {[](Profile& p) { p.device.architecture = "sm_80"; }, {"architecture sm_80", "now it is fake"}},
      {[](Profile& p) { p.device.num_multiprocessors = 8; }, {"num_multiprocessors 8", "now it is 0"}},
      {[](Profile& p) { p.device.driver_version = 12040; }, {"driver_version 12040", "now it is 0"}},
      {[](Profile& p) { p.plugins[1].content = "old"; }, {"plugin org.b", "of content old", "now it is content of org.b"}},
      {[](Profile& p) { p.plugins[1].id = "org.gone"; }, {"plugin org.gone 1.0, which is not here"}},
  };
  for (const auto& change : changes) {
    Three world;
    world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
    change.change(*world.profile);
    const Decision decision = world.select(Problem(), "", true);
    CAPTURE(decision.profile.stale);
    CHECK(decision.decode().backend.key.name == "A");
    CHECK(decision.origin == "order");
    CHECK_FALSE(decision.profile.found);
    CHECK(decision.candidates[0].measured.empty());
    for (const char* part : change.parts) CHECK(decision.profile.stale.find(part) != std::string::npos);
  }
}

TEST_CASE("profile_of_another_kind_of_device_says_nothing") {
  Three world;
  world.measured({{"A", {20, 22}}, {"B", {10, 12}}});
  world.profile->device.kind = ANYATTN_DEVICE_CUDA;
  world.profile->device.name = "another";
  const Decision decision = world.select(Problem());
  CHECK(decision.origin == "order");
  CHECK(decision.profile.file == "");
  CHECK(decision.profile.stale == "");
}
