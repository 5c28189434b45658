// SPDX-License-Identifier: Apache-2.0
// The decision cache: one answer per problem, device, must and generation; safe from many threads.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::cpu;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

struct Cached : World {
  using World::World;
  std::shared_ptr<const Decision> cached(const anyattn_problem& problem, const std::string& backend = "") {
    const anyattn_device_facts facts = device(device_kind);
    return cache.select({&problem, &facts, {}, backend, false}, config, *registry);
  }
  DecisionCache cache;
};

}  // namespace

TEST_CASE("an_equal_question_is_answered_once") {
  Cached world;
  FakePlugin plugin = plain_plugin("org.one", "ONE");
  const auto behaviour = plugin.behaviour;
  world.add({plugin});
  const auto first = world.cached(Problem());
  const auto second = world.cached(Problem());
  CHECK(first == second);
  CHECK(behaviour->asked == 1);
}

TEST_CASE("another_problem_device_or_must_is_another_question") {
  Cached world;
  world.add({plain_plugin("org.one", "ONE"), plain_plugin("org.two", "TWO")});
  const auto first = world.cached(Problem());
  Problem sinks;
  CHECK(world.cached(sinks.with(ANYATTN_FEATURE_SINKS)) != first);
  CHECK(world.cached(Problem(), "TWO")->decode().backend.key.name == "TWO");
  CHECK(world.cached(Problem(), "ONE") != first);
  CHECK(world.cache.size() == 4);
}

TEST_CASE("a_new_generation_is_decided_anew_without_a_restart") {
  Cached world("CPU_ATTN", "com.acme");
  world.add({plain_plugin("org.cpu", "CPU_ATTN")});
  const auto before = world.cached(Problem());
  CHECK(before->decode().backend.plugin->id == "org.cpu");
  world.registry->register_backend(cpu("CPU_ATTN"), world.put(plain_plugin("com.acme", "CPU_ATTN")));
  const auto during = world.cached(Problem());
  CHECK(during->decode().backend.plugin->id == "com.acme");
  CHECK(before->decode().backend.plugin->id == "org.cpu");  // what was made of it keeps it
  CHECK(world.cache.size() == 1);
  world.registry->clear_override(cpu("CPU_ATTN"));
  CHECK(world.cached(Problem())->decode().backend.plugin->id == "org.cpu");
}

TEST_CASE("refusals_are_not_kept") {
  Cached world;
  world.add({anyattn::test::plugin_for("org.picky", "PICKY", "head_size", "128")});
  CHECK_FALSE(world.cached(Problem())->ok());
  CHECK(world.cache.size() == 0);
  Problem invalid;
  invalid.c.head_size = 0;
  CHECK(world.cached(invalid)->error == Error::kInvalidProblem);
}

TEST_CASE("a_decision_is_logged_once_with_origin_and_block_size") {
  Cached world;
  world.add({plain_plugin("org.one", "ONE")});
  for (int i = 0; i < 3; ++i) world.cached(Problem());
  size_t lines = 0;
  for (const std::string& line : world.log_lines)
    lines +=
        line.starts_with("selection: ONE (org.one) on cpu, phase both, by unlisted, block_size 16 (backend's): attention_type");
  CHECK(lines == 1);
}

TEST_CASE("threads_that_select_while_overrides_come_and_go_get_whole_answers") {
  Cached world("CPU_ATTN", "com.acme");
  FakePlugin broken = plain_plugin("com.broken", "BROKEN");
  broken.fails = "no";
  world.add({broken, plain_plugin("org.cpu", "CPU_ATTN"), plain_plugin("org.other", "OTHER")});
  world.config.order["cpu"] = {"BROKEN", "CPU_ATTN"};
  const std::string acme = world.put(plain_plugin("com.acme", "CPU_ATTN"));
  anyattn::log::set_level(anyattn::log::Level::kOff);

  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&world, &wrong, t] {
      for (int i = 0; i < 200; ++i) {
        Problem problem;
        problem.c.num_q_heads = 8u * static_cast<uint32_t>(1 + i % 3);
        const auto decision = world.cached(problem, t == 0 ? "OTHER" : "");
        const std::string& id = decision->ok() ? decision->decode().backend.plugin->id : decision->text;
        if (t == 0 ? id != "org.other" : id != "org.cpu" && id != "com.acme") ++wrong;
        (void)world.registry->snapshot();
      }
    });
  for (int i = 0; i < 50; ++i) {
    world.registry->register_backend(cpu("CPU_ATTN"), i == 0 ? acme : "com.acme");
    world.registry->clear_override(cpu("CPU_ATTN"));
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  // Threads may have met the override each time: whoever owns the name now is opened at the latest here.
  CHECK(world.cached(Problem())->decode().backend.plugin->id == "org.cpu");
  CHECK(world.opened.at("/plugins/org.cpu.so") == 1);
  CHECK(world.opened.at("/plugins/com.broken.so") == 1);
}
