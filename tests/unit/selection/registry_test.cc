// SPDX-License-Identifier: Apache-2.0
// Registration: lazy opening, transactions, failures that keep their words, states, providers.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/status_error.h"
#include "unit/selection/world.h"

using namespace anyattn::registry;
using anyattn::StatusError;
using anyattn::test::cpu;
using anyattn::test::cuda;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::World;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a_plugin_with_a_sidecar_is_opened_at_first_need_and_once") {
  World world;
  world.add({plain_plugin("org.one", "ONE")});
  CHECK(world.opened.at("/plugins/org.one.so") == 0);
  CHECK(world.registry->snapshot().backends[0].state == State::kListed);
  CHECK(world.answerer(cpu("ONE")) == "org.one");
  CHECK(world.answerer(cpu("ONE")) == "org.one");
  CHECK(world.opened.at("/plugins/org.one.so") == 1);
  CHECK(world.registry->snapshot().backends[0].state == State::kOpen);
}

TEST_CASE("a_plugin_without_a_sidecar_is_opened_when_added") {
  World world;
  FakePlugin plugin = plain_plugin("org.one", "ONE");
  plugin.has_sidecar = false;
  world.add({plugin});
  CHECK(world.opened.at("/plugins/org.one.so") == 1);
  CHECK(world.list() == std::vector<std::string>{"ONE on cpu org.one /plugins/org.one.so open overrides= overridden_by="});
}

TEST_CASE("a_required_plugin_that_does_not_open_is_thrown_with_its_own_text") {
  World world;
  FakePlugin plugin = plain_plugin("org.one", "ONE");
  plugin.required = true;
  plugin.fails = "libfoo.so.3: cannot open shared object file";
  CHECK_THROWS_WITH_AS(world.add({plugin}),
                       "plugin org.one (/plugins/org.one.so) failed at open: libfoo.so.3: cannot open shared object file",
                       StatusError);
}

TEST_CASE("a_name_may_stand_on_several_device_kinds") {
  World world;
  FakePlugin portable = plain_plugin("org.portable", "PORTABLE");
  portable.backends = {cpu("PORTABLE"), cuda("PORTABLE")};
  world.add({portable});
  CHECK(world.list().size() == 2);
  CHECK(world.answerer(cpu("PORTABLE")) == "org.portable");
  CHECK(world.answerer(cuda("PORTABLE")) == "org.portable");
  CHECK(world.answerer({"PORTABLE", ANYATTN_DEVICE_HIP}) == "nobody");
}

TEST_CASE("two_plugins_of_one_name_give_one_line_and_a_skip") {
  World world;
  world.add({plain_plugin("org.first", "SAME"), plain_plugin("org.second", "SAME")});
  CHECK(world.list() ==
        std::vector<std::string>{"SAME on cpu org.first /plugins/org.first.so listed overrides= overridden_by="});
  const Snapshot snapshot = world.registry->snapshot();
  REQUIRE(snapshot.skipped.size() == 1);
  CHECK(snapshot.skipped[0].path == "/plugins/org.second.so");
  CHECK(snapshot.skipped[0].stage == Stage::kRegister);
  CHECK(snapshot.skipped[0].reason == "SAME on cpu belongs to org.first");
  CHECK(contains(snapshot.skipped[0].remedy, "override: {SAME: org.second}"));
}

TEST_CASE("registration_is_all_of_a_plugin_or_none_of_it") {
  World world;
  FakePlugin second = plain_plugin("org.second", "FREE");
  second.backends.push_back(cpu("SAME"));
  world.add({plain_plugin("org.first", "SAME"), second});
  CHECK(world.list().size() == 1);
  CHECK(contains(world.answerer(cpu("FREE")), "SAME on cpu belongs to org.first"));
}

TEST_CASE("two_files_of_one_plugin_id_are_one_plugin_and_a_skip") {
  World world;
  FakePlugin copy = plain_plugin("org.one", "OTHER");
  copy.path = "/plugins/copy.so";
  world.add({plain_plugin("org.one", "ONE"), copy});
  CHECK(world.list().size() == 1);
  CHECK(world.registry->snapshot().skipped.at(0).reason == "the id org.one is already registered from /plugins/org.one.so");
}

TEST_CASE("a_plugin_that_fails_keeps_its_own_text_for_every_later_call") {
  World world;
  FakePlugin plugin = plain_plugin("org.one", "ONE");
  plugin.fails = "driver says: no such device";
  world.add({plugin});
  const std::string text = "plugin org.one (/plugins/org.one.so) failed at open: driver says: no such device";
  CHECK(world.answerer(cpu("ONE")) == text);
  CHECK(world.answerer(cpu("ONE")) == text);
  CHECK(world.opened.at("/plugins/org.one.so") == 1);
  CHECK(world.list().empty());
  CHECK(world.registry->snapshot().skipped.size() == 1);
  CHECK(world.logged(text));
}

TEST_CASE("after_a_failure_a_fixed_copy_takes_the_name") {
  World world;
  FakePlugin plugin = plain_plugin("org.one", "ONE");
  plugin.fails = "bad build";
  world.add({plugin});
  CHECK(contains(world.answerer(cpu("ONE")), "bad build"));
  SUBCASE("at the same path") {
    plugin.fails.clear();
    world.registry->register_backend(cpu("ONE"), world.put(plugin));
  }
  SUBCASE("at another path") {
    plugin.fails.clear();
    plugin.path = "/plugins/fixed.so";
    world.registry->register_backend(cpu("ONE"), world.put(plugin));
  }
  CHECK(world.answerer(cpu("ONE")) == "org.one");
  CHECK(world.registry->snapshot().skipped.empty());
}

TEST_CASE("a_sidecar_that_lies_is_a_failure_with_both_lists") {
  World world;
  FakePlugin plugin = plain_plugin("org.one", "ONE");
  const std::string path = world.put(plugin);
  Candidate candidate;
  candidate.id = "org.one";
  candidate.path = path;
  candidate.has_sidecar = true;
  candidate.backends = {cpu("ONE"), cpu("TWO")};
  world.registry->add({candidate});
  CHECK(contains(world.answerer(cpu("TWO")), "its sidecar lists ONE on cpu, TWO on cpu, but the plugin has ONE on cpu"));
  CHECK(world.list().empty());
}

TEST_CASE("files_turned_away_before_opening_are_skips_and_their_names_say_why") {
  World world;
  world.registry->add_failure(
      {Stage::kInspect, ANYATTN_INVALID_ARGUMENT, "org.cut", "/plugins/cut.so", "truncated file", "build it anew"},
      {cpu("CUT")});
  CHECK(world.answerer(cpu("CUT")) == "plugin org.cut (/plugins/cut.so) failed at inspect: truncated file; build it anew");
  CHECK(world.registry->view().failures.at(0).holds_name);
  CHECK(world.registry->snapshot().skipped.size() == 1);
}

TEST_CASE("a_provider_turned_away_before_opening_says_why_its_devices_are_missing") {
  World world;
  world.registry->add_failure(
      {Stage::kInspect, ANYATTN_INVALID_ARGUMENT, "org.hip", "/plugins/hip.so", "needs libhip.so.5, which is not found", ""},
      {}, {ANYATTN_DEVICE_HIP});

  CHECK(world.registry->provider_kinds() == std::vector<uint32_t>{ANYATTN_DEVICE_HIP});
  const auto acquired = world.registry->acquire_provider(ANYATTN_DEVICE_HIP);
  CHECK(!acquired.provider);
  REQUIRE(acquired.failure);
  CHECK(acquired.failure->reason == "needs libhip.so.5, which is not found");
  CHECK(!world.registry->acquire_provider(ANYATTN_DEVICE_CUDA).failure);
}

TEST_CASE("a_copy_that_discovery_turned_away_stays_a_skip_when_the_first_one_registers") {
  World world;
  world.registry->add_failure(
      {Stage::kDiscover, ANYATTN_NOT_FOUND, "org.one", "/plugins/copy.so", "is a copy of /plugins/org.one.so", ""},
      {cpu("ONE")});
  world.add({plain_plugin("org.one", "ONE")});
  CHECK(world.answerer(cpu("ONE")) == "org.one");
  CHECK(world.registry->snapshot().skipped.size() == 1);
  const anyattn::selector::Decision decision = world.select(anyattn::test::Problem(), "", true);
  REQUIRE(decision.candidates.size() == 1);
  CHECK(decision.candidates[0].verdict == anyattn::selector::Verdict::kChosen);
}

TEST_CASE("every_change_makes_a_new_generation_and_opening_does_not") {
  World world;
  const uint64_t start = world.registry->generation();
  world.add({plain_plugin("org.one", "ONE")});
  const uint64_t added = world.registry->generation();
  CHECK(added == start + 1);
  CHECK(world.answerer(cpu("ONE")) == "org.one");
  CHECK(world.registry->generation() == added);
  world.registry->register_backend(cpu("TWO"), world.put(plain_plugin("org.two", "TWO")));
  CHECK(world.registry->generation() > added);
}

TEST_CASE("a_handle_keeps_plugin_and_table_when_the_registry_is_gone") {
  OpenBackend held;
  std::weak_ptr<const void> loaded;
  {
    World world;
    world.add({plain_plugin("org.one", "ONE")});
    held = *world.registry->acquire(cpu("ONE")).backend;
    loaded = held.plugin->loaded;
  }
  CHECK_FALSE(loaded.expired());
  CHECK(std::string(held.table.name) == "ONE");
  held = {};
  CHECK(loaded.expired());
}

TEST_CASE("one_provider_a_device_kind_the_first_answers_and_the_next_follows_a_failure") {
  World world;
  FakePlugin first = plain_plugin("org.first", "A");
  first.providers = {ANYATTN_DEVICE_CUDA};
  FakePlugin second = plain_plugin("org.second", "B");
  second.providers = {ANYATTN_DEVICE_CUDA};
  SUBCASE("the first answers") {
    world.add({first, second});
    CHECK(world.registry->acquire_provider(ANYATTN_DEVICE_CUDA).provider->plugin->id == "org.first");
    CHECK(world.opened.at("/plugins/org.second.so") == 0);
    CHECK(world.logged("the provider of cuda in org.second stays unused"));
  }
  SUBCASE("the first fails") {
    first.fails = "no driver";
    world.add({first, second});
    CHECK(world.registry->acquire_provider(ANYATTN_DEVICE_CUDA).provider->plugin->id == "org.second");
  }
  SUBCASE("all fail") {
    first.fails = "no driver";
    world.add({first});
    CHECK(world.registry->acquire_provider(ANYATTN_DEVICE_CUDA).failure->reason == "no driver");
    CHECK(world.registry->acquire_provider(ANYATTN_DEVICE_CUDA).failure->reason == "no driver");
  }
  CHECK_FALSE(world.registry->acquire_provider(ANYATTN_DEVICE_HIP).provider);
}

TEST_CASE("an_exception_of_the_loader_is_a_failure_with_its_text") {
  Registry registry(
      {}, [](const Candidate&) -> std::shared_ptr<const OpenPlugin> { throw std::runtime_error("out of handles"); }, {});
  Candidate candidate;
  candidate.id = "org.one";
  candidate.path = "/one.so";
  candidate.has_sidecar = true;
  candidate.backends = {cpu("ONE")};
  registry.add({candidate});
  CHECK(registry.acquire(cpu("ONE")).failure->reason == "out of handles");
}

TEST_CASE("threads_that_need_a_failing_plugin_at_once_open_it_once") {
  std::atomic<int> opens{0};
  Registry registry({},
                    [&](const Candidate&) -> std::shared_ptr<const OpenPlugin> {
                      ++opens;
                      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others arrive meanwhile
                      throw std::runtime_error("no");
                    },
                    {});
  Candidate candidate;
  candidate.id = "org.one";
  candidate.path = "/one.so";
  candidate.has_sidecar = true;
  candidate.backends = {cpu("ONE")};
  registry.add({candidate});
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const Registry::Acquired acquired = registry.acquire(cpu("ONE"));
      if (acquired.failure && acquired.failure->reason == "no") ++told;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(told == 4);
  CHECK(opens == 1);
}
