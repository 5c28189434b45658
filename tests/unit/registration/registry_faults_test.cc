// SPDX-License-Identifier: Apache-2.0
// Each change of the registry, with each of its allocations failing in turn: all of it happened, or none.
#include <doctest/doctest.h>

#include <optional>

#include "device/status_error.h"
#include "unit/registration/faults.h"
#include "unit/selection/world.h"

namespace {

using anyattn::StatusError;
using anyattn::registry::Snapshot;
using anyattn::registry::View;
using anyattn::test::cpu;
using anyattn::test::cuda;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::World;

// Everything that the registry shows, without the count of its generation.
std::string shown(const World& world) {
  std::string text;
  for (const std::string& line : world.list()) text += line + "\n";
  const Snapshot snapshot = world.registry->snapshot();
  for (const Snapshot::Plugin& plugin : snapshot.plugins)
    text += plugin.id + " " + plugin.path + " " + plugin.origin + " " + std::string(state_name(plugin.state)) + "\n";
  for (const auto& failure : snapshot.skipped) text += describe(failure) + "\n";
  const View view = world.registry->view();
  for (const View::Entry& entry : view.entries) text += describe(entry.key) + " of " + entry.plugin + "\n";
  for (const View::NamedFailure& failure : view.failures)
    text += describe(failure.key) + " lost " + std::to_string(failure.holds_name) + " " + describe(failure.failure) + "\n";
  for (const auto& failure : view.other_failures) text += "other " + describe(failure) + "\n";
  for (const uint32_t kind : world.registry->provider_kinds()) text += "provider " + std::to_string(kind) + "\n";
  return text;
}

// Two plugins of one name, the second allowed to take it; one that fails; one that brings a provider.
void furnish(std::optional<World>& world) {
  world.emplace("SAME", "org.second");
  FakePlugin second = plain_plugin("org.second", "SAME");
  second.backends.push_back(cpu("SECOND"));
  FakePlugin failing = plain_plugin("org.failing", "FAILING");
  failing.fails = "libfoo.so.3: cannot open shared object file";
  FakePlugin provider = plain_plugin("org.provider", "PROVIDED");
  provider.backends.push_back(cuda("PROVIDED"));
  provider.providers = {ANYATTN_DEVICE_CUDA};
  world->add({plain_plugin("org.first", "SAME"), second, failing, provider});
}

// `act` may throw StatusError: a failure that it records and answers with. The words of that answer may fail after the record.
void check_transaction(const std::function<void(World&)>& arrange, const std::function<void(World&)>& act) {
  std::optional<World> world;
  std::string before;
  std::string after;
  bool fails = false;
  const auto attempt = [&] {
    try {
      act(*world);
    } catch (const StatusError&) {
      fails = true;
    }
  };
  const auto prepare = [&] {
    furnish(world);
    arrange(*world);
    before = shown(*world);
  };
  prepare();
  attempt();
  after = shown(*world);
  CHECK(before != after);
  const uint64_t steps = faults::at_every_step(prepare, attempt, [&](const faults::Outcome& outcome) {
    const std::string now = shown(*world);
    if (outcome.threw && !fails) CHECK(now == before);
    if (!outcome.threw) CHECK(now == after);
    CHECK((now == before || now == after));
    attempt();
    CHECK(shown(*world) == after);  // and nothing of the attempt is in the way of the next one
  });
  CHECK(steps > 5);
  MESSAGE(steps << " steps");
}

void nothing(World&) {}

}  // namespace

TEST_CASE("registering_a_file_is_whole_or_undone_at_every_step") {
  check_transaction(
      [](World& world) {
        FakePlugin plugin = plain_plugin("org.new", "NEW");
        plugin.backends.push_back(cuda("NEW"));
        plugin.providers = {ANYATTN_DEVICE_CUDA, ANYATTN_DEVICE_HIP};
        world.put(plugin);
      },
      [](World& world) { world.registry->register_backend(cpu("NEW"), "/plugins/org.new.so"); });
}

TEST_CASE("registering_a_file_that_fails_is_recorded_whole_or_not_at_every_step") {
  check_transaction(
      [](World& world) {
        FakePlugin plugin = plain_plugin("org.new", "NEW");
        plugin.fails = "the licence server is on fire";
        world.put(plugin);
      },
      [](World& world) { world.registry->register_backend(cpu("NEW"), "/plugins/org.new.so"); });
}

TEST_CASE("an_override_by_a_call_and_its_end_are_whole_or_undone_at_every_step") {
  const auto clear = [](World& world) {
    world.registry->acquire(cpu("SECOND"));  // opened: that stays whatever becomes of names
    world.registry->clear_override(cpu("SAME"));
  };
  check_transaction([](World& world) { world.registry->acquire(cpu("SECOND")); }, clear);
  check_transaction(clear, [](World& world) { world.registry->register_backend(cpu("SAME"), "org.second"); });
}

TEST_CASE("a_plugin_that_opens_at_first_need_is_open_or_listed_at_every_step") {
  check_transaction(nothing, [](World& world) { world.registry->acquire(cpu("SAME")); });
}

TEST_CASE("a_plugin_that_fails_at_first_need_gives_all_its_names_up_or_none_at_every_step") {
  check_transaction(nothing, [](World& world) { world.registry->acquire(cpu("FAILING")); });
}
