// SPDX-License-Identifier: Apache-2.0
// Who is asked, in which order, and who says that: call, flag, environment, rule, selection.backend, order.
#include <doctest/doctest.h>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::config::Rule;
using anyattn::test::cpu;
using anyattn::test::cuda;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::plugin_for;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

std::vector<std::string> asked(const Decision& decision) {
  std::vector<std::string> names;
  for (const Candidate& candidate : decision.candidates)
    names.push_back(candidate.backend + " " + std::string(verdict_name(candidate.verdict)));
  return names;
}

std::string chosen(const Decision& decision) { return decision.ok() ? decision.decode().backend.key.name : decision.text; }

Rule rule(std::vector<std::pair<std::string, std::string>> when, const std::string& backend, const std::string& origin) {
  Rule made;
  for (const auto& [key, value] : when) made.when.push_back({key, value, {origin}});
  made.backend = backend;
  made.origin.text = origin;
  return made;
}

World& three(World& world) {
  world.add({plain_plugin("org.c", "C"), plain_plugin("org.b", "B"), plain_plugin("org.a", "A")});
  return world;
}

}  // namespace

TEST_CASE("the_order_decides_and_unlisted_backends_come_after_by_plugin_id_then_name") {
  World world;
  FakePlugin two = plain_plugin("org.a", "Z");
  two.backends.push_back(cpu("Y"));
  world.add({plain_plugin("org.c", "C"), plain_plugin("org.b", "B"), two});
  world.config.order["cpu"] = {"B"};
  const Decision decision = world.select(Problem(), "", true);
  CHECK(asked(decision) == std::vector<std::string>{"B chosen", "Y eligible", "Z eligible", "C eligible"});
  CHECK(decision.origin == "order");
  world.config.order["cpu"] = {};
  CHECK(world.select(Problem()).origin == "unlisted");
}

TEST_CASE("without_explain_nobody_is_asked_after_the_first_that_fits") {
  World world;
  three(world).config.order["cpu"] = {"B", "C"};
  CHECK(asked(world.select(Problem())) == std::vector<std::string>{"B chosen"});
  CHECK(world.opened.at("/plugins/org.c.so") == 0);
  CHECK(world.opened.at("/plugins/org.a.so") == 0);
}

TEST_CASE("a_refusal_is_kept_with_every_reason_and_the_walk_goes_on") {
  World world;
  FakePlugin picky = plain_plugin("org.picky", "PICKY");
  picky.behaviour->refuse = [](const anyattn_problem& p, const anyattn::test::Refuse& refuse) {
    refuse(ANYATTN_REASON_HEAD_SIZE, "head_size", std::to_string(p.head_size), "128");
    refuse(ANYATTN_REASON_DTYPE, "q_dtype", "bfloat16", "float32");
  };
  world.add({picky, plain_plugin("org.plain", "PLAIN")});
  world.config.order["cpu"] = {"PICKY", "PLAIN"};
  const Decision decision = world.select(Problem());
  CHECK(asked(decision) == std::vector<std::string>{"PICKY refused", "PLAIN chosen"});
  REQUIRE(decision.candidates[0].reasons.size() == 2);
  CHECK(decision.candidates[0].reasons[0].id == ANYATTN_REASON_HEAD_SIZE);
  CHECK(describe(decision.candidates[0].reasons[1]) == "q_dtype bfloat16, allowed: float32");
  CHECK(decision.candidates[0].stage == anyattn::registry::Stage::kSupports);
}

TEST_CASE("the_nearest_must_wins_and_is_named_as_the_origin") {
  World world;
  three(world).config.order["cpu"] = {"C", "B", "A"};
  CHECK(world.select(Problem()).origin == "order");

  world.config.backend = "A";
  world.config.backend_origin.text = "anyattn.yaml:7";
  CHECK(chosen(world.select(Problem())) == "A");
  CHECK(world.select(Problem()).origin == "selection.backend anyattn.yaml:7");

  world.config.rules = {rule({{"head_size", "64"}}, "B", "anyattn.yaml:9")};
  CHECK(chosen(world.select(Problem())) == "B");
  CHECK(world.select(Problem()).origin == "rule anyattn.yaml:9");

  for (const char* origin : {"environment ANYATTN_BACKEND", "flag"}) {
    world.config.backend_origin.text = origin;
    CHECK(chosen(world.select(Problem())) == "A");
    CHECK(world.select(Problem()).origin == origin);
  }
  CHECK(chosen(world.select(Problem(), "C")) == "C");
  CHECK(world.select(Problem(), "C").origin == "call");
}

TEST_CASE("every_must_that_does_not_fit_is_an_error_and_never_replaced") {
  World world;
  world.add({plain_plugin("org.plain", "PLAIN"), plugin_for("org.picky", "PICKY", "head_size", "128")});
  world.config.order["cpu"] = {"PLAIN"};
  const auto refused = [&](const std::string& call, const std::string& origin) {
    for (const bool ask_all : {false, true}) {
      const Decision decision = world.select(Problem(), call, ask_all);
      CHECK(decision.error == Error::kUnfit);
      CHECK(decision.status == ANYATTN_UNSUPPORTED);
      CHECK(decision.choices.empty());
      CHECK(decision.text.starts_with(
          "selection: backend PICKY (asked for by " + origin +
          ") does not take this problem on cpu: head_size 64, allowed: 128; problem: attention_type"));
    }
  };
  refused("PICKY", "call");
  world.config.rules = {rule({}, "PICKY", "f.yaml:3")};
  refused("", "rule f.yaml:3");
  world.config.rules.clear();
  world.config.backend = "PICKY";
  for (const char* origin : {"flag", "environment ANYATTN_BACKEND"}) {
    world.config.backend_origin.text = origin;
    refused("", origin);
  }
  world.config.backend_origin.text = "f.yaml:2";
  refused("", "selection.backend f.yaml:2");
}

TEST_CASE("explain_with_a_must_asks_the_others_too_and_chooses_none_of_them") {
  World world;
  world.add({plain_plugin("org.plain", "PLAIN"), plugin_for("org.picky", "PICKY", "head_size", "128")});
  CHECK(asked(world.select(Problem(), "PICKY", true)) == std::vector<std::string>{"PICKY refused", "PLAIN eligible"});
}

TEST_CASE("rules_match_on_problem_fields_and_device_and_the_first_wins") {
  World world;
  three(world);
  world.config.rules = {rule({{"window", "true"}, {"device", "cuda"}}, "A", "f:1"), rule({{"window", "true"}}, "B", "f:2"),
                        rule({{"window_left", "127"}}, "A", "f:3"), rule({{"attention_type", "encoder_only"}}, "C", "f:4"),
                        rule({{"kv_cache_dtype", "bfloat16"}}, "A", "f:5")};
  Problem window;
  window.with(ANYATTN_FEATURE_WINDOW).c.window_left = 127;
  CHECK(world.select(window).origin == "rule f:2");
  Problem encoder;
  encoder.c.attention_type = ANYATTN_TYPE_ENCODER_ONLY;
  CHECK(world.select(encoder).origin == "rule f:4");
  CHECK(world.select(Problem()).origin == "rule f:5");  // auto has become the query's dtype
}

TEST_CASE("mla_problems_go_to_mla_backends") {
  World world;
  const auto refuse_mla_unless = [](bool wanted) {
    return [wanted](const anyattn_problem& p, const anyattn::test::Refuse& refuse) {
      if ((anyattn_problem_has(&p, ANYATTN_FEATURE_MLA) != 0) != wanted)
        refuse(ANYATTN_REASON_MLA, "mla", wanted ? "false" : "true", wanted ? "true" : "false");
    };
  };
  FakePlugin plain = plain_plugin("org.plain", "PLAIN");
  plain.behaviour->refuse = refuse_mla_unless(false);
  FakePlugin mla = plain_plugin("org.mla", "LATENT");
  mla.is_mla = true;
  mla.behaviour->refuse = refuse_mla_unless(true);
  world.add({plain, mla});
  CHECK(chosen(world.select(Problem().mla())) == "LATENT");
  CHECK(chosen(world.select(Problem())) == "PLAIN");
}

TEST_CASE("nobody_fits_is_one_error_with_every_candidates_reasons_and_the_request") {
  World world;
  world.add({plugin_for("org.a", "A", "head_size", "128"), plugin_for("org.b", "B", "q_dtype", "float32")});
  const Decision decision = world.select(Problem());
  CHECK(decision.error == Error::kNobody);
  CHECK(decision.status == ANYATTN_UNSUPPORTED);
  CHECK(decision.text.starts_with(
      "selection: no backend takes this problem on cpu: A (org.a) refused at supports: head_size 64, allowed: 128; "
      "B (org.b) refused at supports: q_dtype bfloat16, allowed: float32; problem: attention_type decoder, "));
}

TEST_CASE("only_an_automatic_choice_falls_to_a_device_kind_that_the_file_allows") {
  World world;
  FakePlugin gpu = plugin_for("org.gpu", "GPU", "head_size", "128");
  gpu.backends = {cuda("GPU")};
  world.add({gpu, plain_plugin("org.cpu", "CPU")});
  world.device_kind = ANYATTN_DEVICE_CUDA;
  CHECK(world.select(Problem()).error == Error::kNobody);

  world.fallback_kinds = {ANYATTN_DEVICE_CPU};
  const Decision fallen = world.select(Problem());
  CHECK(chosen(fallen) == "CPU");
  CHECK(fallen.device_kind == ANYATTN_DEVICE_CPU);
  CHECK(fallen.origin == "unlisted, fallen from cuda to cpu");
  CHECK(asked(fallen) == std::vector<std::string>{"GPU refused", "CPU chosen"});
  CHECK(world.select(Problem(), "GPU").error == Error::kUnfit);
}

TEST_CASE("a_rule_for_the_device_fallen_to_is_a_must_there") {
  World world;
  FakePlugin gpu = plugin_for("org.gpu", "GPU", "head_size", "128");
  gpu.backends = {cuda("GPU")};
  world.add({gpu, plain_plugin("org.cpu", "CPU"), plain_plugin("org.other", "OTHER")});
  world.config.order["cpu"] = {"CPU"};
  world.config.rules = {rule({{"device", "cpu"}}, "OTHER", "f:1")};
  world.device_kind = ANYATTN_DEVICE_CUDA;
  world.fallback_kinds = {ANYATTN_DEVICE_CPU};
  const Decision decision = world.select(Problem());
  CHECK(chosen(decision) == "OTHER");
  CHECK(decision.origin == "rule f:1, fallen from cuda to cpu");
}

TEST_CASE("a_must_stays_on_its_device_even_where_its_name_is_on_the_allowed_one_too") {
  World world;
  FakePlugin gpu = plugin_for("org.gpu", "PORTABLE", "head_size", "128");
  gpu.backends = {cuda("PORTABLE")};
  world.add({gpu, plain_plugin("org.cpu", "PORTABLE")});
  world.device_kind = ANYATTN_DEVICE_CUDA;
  world.fallback_kinds = {ANYATTN_DEVICE_CPU};
  CHECK(world.select(Problem()).device_kind == ANYATTN_DEVICE_CPU);
  CHECK(world.select(Problem(), "PORTABLE").error == Error::kUnfit);
}

TEST_CASE("a_backend_on_another_device_is_not_asked") {
  World world;
  FakePlugin gpu = plain_plugin("org.gpu", "GPU");
  gpu.backends = {cuda("GPU")};
  world.add({gpu, plain_plugin("org.cpu", "CPU")});
  CHECK(asked(world.select(Problem(), "", true)) == std::vector<std::string>{"CPU chosen"});
  CHECK(world.opened.at("/plugins/org.gpu.so") == 0);
}
