// SPDX-License-Identifier: Apache-2.0
// Backends whose answer contradicts itself: failed with the contradiction, never chosen, never a crash.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::Behaviour;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

using Report = anyattn_support_report;

struct Case {
  const char* expect;
  std::function<void(FakePlugin&)> spoil;
  std::function<void(Problem&)> ask = {};
};

std::function<void(FakePlugin&)> report(std::function<void(Report&)> touch) {
  return [touch](FakePlugin& plugin) {
    plugin.behaviour->touch_report = [touch](const anyattn_problem&, Report& r) { touch(r); };
  };
}

}  // namespace

TEST_CASE("an_answer_that_contradicts_itself_is_a_failure_with_its_text") {
  const Case cases[] = {
      {"refuses without giving a reason", report([](Report& r) { r.supported = 0; })},
      {"answers supported 7: 0 or 1", report([](Report& r) { r.supported = 7; })},
      {"takes the problem but names no block_size", report([](Report& r) { r.block_size = 0; })},
      {"was asked for block_size 32 and answers 16", report([](Report& r) { r.block_size = 16; }),
       [](Problem& p) { p.c.block_size = 32; }},
      {"takes block_size 24, which is neither in its list nor a multiple of 16", report([](Report& r) { r.block_size = 24; })},
      {"num_block_sizes 9: at most 8", report([](Report& r) { r.num_block_sizes = 9; })},
      {"names block_size 16 although keys are ragged", report([](Report& r) { r.block_size = 16; }),
       [](Problem& p) { p.ragged(); }},
      {"query_lengths 0: 1 (single)", report([](Report& r) { r.query_lengths = 0; })},
      {"takes phase both but only single query lengths", report([](Report& r) { r.query_lengths = ANYATTN_QUERY_SINGLE; })},
      {"needs_host_lengths 2", report([](Report& r) { r.needs_host_lengths = 2; })},
      {"takes lse but lists no lse base", report([](Report& r) { r.lse_bases = 8; }),
       [](Problem& p) { p.with(ANYATTN_FEATURE_LSE); }},
      {"takes lse but has no merge_states", [](FakePlugin& p) { p.has_merge_states = false; },
       [](Problem& p) { p.with(ANYATTN_FEATURE_LSE); }},
      {"was asked for graph_level always and answers never", report([](Report& r) { r.graph_level = 5; }),
       [](Problem& p) { p.with(ANYATTN_FEATURE_GRAPH).c.graph_level = ANYATTN_GRAPH_ALWAYS; }},
      {"cost_hint nan", report([](Report& r) { r.cost_hint = std::numeric_limits<double>::quiet_NaN(); })},
      {"takes an mla problem but has no forward_mqa", [](FakePlugin&) {}, [](Problem& p) { p.mla(); }},
      {"takes a problem without mla but has no forward", [](FakePlugin& p) { p.is_mla = true; }},
      {"takes paged keys but has no kv_cache_spec",
       [](FakePlugin& p) { p.touch_table = [](anyattn_backend& t) { t.kv_cache_spec = nullptr; }; }},
      {"takes paged keys but has no kv_cache_update",
       [](FakePlugin& p) { p.touch_table = [](anyattn_backend& t) { t.kv_cache_update = nullptr; }; }},
      {"fails in supports with status 6: the device is on fire",
       [](FakePlugin& p) {
         p.behaviour->supports_fails = [](anyattn_error* e) {
           return anyattn_error_set(e, ANYATTN_DEVICE_ERROR, "the device is on fire");
         };
       }},
      {"refuses without giving a reason",
       [](FakePlugin& p) { p.behaviour->supports_fails = [](anyattn_error*) { return ANYATTN_UNSUPPORTED; }; }},
      {"thrown across",
       [](FakePlugin& p) {
         p.behaviour->supports_fails = [](anyattn_error*) -> int32_t { throw std::runtime_error("thrown across"); };
       }},
      {"its kv_cache_spec fails with status 4: too big",
       [](FakePlugin& p) {
         p.behaviour->spec_fails = [](anyattn_error* e) { return anyattn_error_set(e, ANYATTN_OUT_OF_MEMORY, "too big"); };
       }},
      {"accepts no kv cache spec", [](FakePlugin& p) { p.behaviour->layouts.clear(); }},
      {"gives a kv cache spec HND that is wrong: digest",
       [](FakePlugin& p) { p.behaviour->touch_spec = [](anyattn_kv_cache_spec& s) { s.digest ^= 1; }; }},
      {"is wrong: block_size 99 although 16 was asked for",
       [](FakePlugin& p) { p.behaviour->touch_spec = [](anyattn_kv_cache_spec& s) { s.block_size = 99; }; }},
      {"a spec without planes",
       [](FakePlugin& p) { p.behaviour->touch_spec = [](anyattn_kv_cache_spec& s) { s.planes = nullptr; }; }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.expect);
    World world;
    FakePlugin plugin = plain_plugin("org.odd", "ODD");
    one.spoil(plugin);
    world.add({plugin});
    Problem problem;
    if (one.ask) one.ask(problem);
    const Decision decision = world.select(problem, "ODD");
    CAPTURE(decision.text);
    CHECK(decision.error == Error::kPluginFailed);
    CHECK(decision.text.find(one.expect) != std::string::npos);
    CHECK(decision.text.find("ODD") != std::string::npos);
    REQUIRE(decision.candidates.size() == 1);
    CHECK(decision.candidates[0].verdict == Verdict::kFailed);
    CHECK(decision.candidates[0].stage == anyattn::registry::Stage::kSupports);
  }
}

TEST_CASE("a_yes_with_reasons_against_it_is_a_failure") {
  World world;
  FakePlugin plugin = plain_plugin("org.odd", "ODD");
  plugin.behaviour->refuse = [](const anyattn_problem&, const anyattn::test::Refuse& refuse) {
    refuse(ANYATTN_REASON_HEADS, "num_q_heads", "8", "4");
  };
  plugin.touch_table = [](anyattn_backend& table) {
    table.supports = [](const anyattn_host*, const anyattn_device_facts*, const anyattn_problem*,
                        const anyattn_reason_sink* reasons, anyattn_support_report* report, anyattn_error*) -> int32_t {
      const anyattn_reason reason{ANYATTN_REASON_SIZE, ANYATTN_REASON_HEADS, "num_q_heads", "8", nullptr, nullptr};
      reasons->add(reasons->context, &reason);
      report->supported = 1;
      return ANYATTN_OK;
    };
  };
  world.add({plugin});
  const Decision decision = world.select(Problem());
  CHECK(decision.error == Error::kNobody);
  CHECK(decision.text.find("takes the problem and gives reasons against it: num_q_heads 8") != std::string::npos);
}

TEST_CASE("a_text_of_kernels_without_an_end_is_cut") {
  World world;
  FakePlugin plugin = plain_plugin("org.long", "LONG");
  plugin.behaviour->touch_report = [](const anyattn_problem&, Report& r) { std::fill_n(r.kernels, sizeof r.kernels, 'k'); };
  world.add({plugin});
  CHECK(std::string(world.select(Problem()).decode().report.kernels) == std::string(sizeof(Report::kernels) - 1, 'k'));
}

TEST_CASE("a_backend_that_contradicts_itself_does_not_stop_the_next") {
  World world;
  FakePlugin odd = plain_plugin("org.odd", "ODD");
  odd.behaviour->layouts.clear();
  world.add({odd, plain_plugin("org.plain", "PLAIN")});
  world.config.order["cpu"] = {"ODD", "PLAIN"};
  CHECK(world.select(Problem()).decode().backend.key.name == "PLAIN");
}

TEST_CASE("an_unknown_graph_level_reads_as_the_next_lower_known_one") {
  World world;
  FakePlugin plugin = plain_plugin("org.new", "NEW");
  plugin.behaviour->touch_report = [](const anyattn_problem&, Report& r) { r.graph_level = 25; };
  world.add({plugin});
  CHECK(world.select(Problem()).decode().report.graph_level == ANYATTN_GRAPH_UNIFORM_BATCH);
}

TEST_CASE("a_backend_of_an_older_minor_refuses_bits_it_does_not_know_by_number") {
  World world;
  FakePlugin old = plain_plugin("org.old", "OLD");
  old.behaviour->refuse = [](const anyattn_problem& p, const anyattn::test::Refuse& refuse) {
    for (const std::string& name : feature_names(p))
      if (name.starts_with("feature_")) refuse(ANYATTN_REASON_FEATURE_UNKNOWN, name.c_str(), "true", "false");
  };
  world.add({old});
  const uint64_t words[1] = {uint64_t{1} << 40};
  anyattn_problem problem = Problem();
  problem.features = words;
  const Decision decision = world.select(problem, "OLD");
  CHECK(decision.error == Error::kUnfit);
  CHECK(decision.text.find("feature_40 true, allowed: false") != std::string::npos);
}
