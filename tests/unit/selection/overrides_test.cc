// SPDX-License-Identifier: Apache-2.0
// Overrides: by the file's word and a plugin's wish, by call, and taking them back. One line of `list` changes, never two.
#include <doctest/doctest.h>

#include "device/status_error.h"
#include "unit/selection/world.h"

using namespace anyattn::registry;
using anyattn::StatusError;
using anyattn::test::cpu;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

const std::vector<std::string> kNames{"CPU_ATTN", "CPU_MLA", "CUSTOM", "PORTABLE_ATTN", "PORTABLE_MLA"};

std::vector<FakePlugin> originals() {
  std::vector<FakePlugin> plugins;
  for (const std::string& name : kNames) plugins.push_back(plain_plugin("org." + name, name));
  return plugins;
}

size_t lines_that_differ(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  REQUIRE(one.size() == other.size());
  size_t count = 0;
  for (size_t i = 0; i < one.size(); ++i) count += one[i] != other[i];
  return count;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an_override_changes_exactly_one_line_and_clearing_it_brings_the_list_back") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    World world(name, "com.acme");
    world.add(originals());
    const std::vector<std::string> before = world.list();

    world.registry->register_backend(cpu(name), world.put(plain_plugin("com.acme", name)));
    CHECK(lines_that_differ(before, world.list()) == 1);
    for (const std::string& other : kNames) CHECK(world.answerer(cpu(other)) == (other == name ? "com.acme" : "org." + other));
    CHECK(world.logged(name + " on cpu belongs to com.acme (/plugins/com.acme.so) now, which overrides org." + name));

    world.registry->clear_override(cpu(name));
    for (const std::string& other : kNames) CHECK(world.answerer(cpu(other)) == "org." + other);
    CHECK(world.logged(name + " on cpu belongs to org." + name + " again; the override by com.acme is cleared"));
    World untouched;
    untouched.add(originals());
    for (const std::string& other : kNames) untouched.answerer(cpu(other));
    CHECK(world.list() == untouched.list());
  }
}

TEST_CASE("list_shows_who_overrides_whom") {
  World world("CPU_ATTN", "com.acme");
  world.add({plain_plugin("org.cpu", "CPU_ATTN"), plain_plugin("com.acme", "CPU_ATTN")});
  const Snapshot::Row row = world.registry->snapshot().backends.at(0);
  CHECK(row.plugin == "com.acme");
  CHECK(row.overrides == "org.cpu");
  CHECK(row.overridden_by == "com.acme");
  CHECK(row.beneath.at(0).plugin == "org.cpu");
}

TEST_CASE("a_plugins_wish_for_a_taken_name_needs_the_files_word") {
  const std::vector<FakePlugin> plugins{plain_plugin("org.cpu", "CPU_ATTN"), plain_plugin("com.acme", "CPU_ATTN")};
  SUBCASE("allowed") {
    World world("CPU_ATTN", "com.acme");
    world.add(plugins);
    CHECK(world.answerer(cpu("CPU_ATTN")) == "com.acme");
  }
  SUBCASE("allowed, found first") {
    World world("CPU_ATTN", "com.acme");
    world.add({plugins[1], plugins[0]});
    CHECK(world.answerer(cpu("CPU_ATTN")) == "com.acme");
    CHECK(world.registry->snapshot().backends.at(0).overrides == "org.cpu");
  }
  SUBCASE("not allowed") {
    World world;
    world.add(plugins);
    CHECK(world.answerer(cpu("CPU_ATTN")) == "org.cpu");
    CHECK(world.registry->snapshot().skipped.size() == 1);
  }
  SUBCASE("allowed to another") {
    World world("CPU_ATTN", "com.other");
    world.add(plugins);
    CHECK(world.answerer(cpu("CPU_ATTN")) == "org.cpu");
  }
}

TEST_CASE("a_call_overrides_only_where_the_file_allows_it") {
  World world;
  world.add({plain_plugin("org.cpu", "CPU_ATTN")});
  const std::string path = world.put(plain_plugin("com.acme", "CPU_ATTN"));
  CHECK_THROWS_WITH_AS(
      world.registry->register_backend(cpu("CPU_ATTN"), path),
      "plugin com.acme (/plugins/com.acme.so) failed at register: CPU_ATTN on cpu belongs to org.cpu; allow it "
      "with `registry: {override: {CPU_ATTN: com.acme}}`, or remove one of the two plugins",
      StatusError);
  CHECK(world.answerer(cpu("CPU_ATTN")) == "org.cpu");
}

TEST_CASE("loading_the_same_file_again_changes_nothing") {
  World world;
  const std::string path = world.put(plain_plugin("com.acme", "ACME"));
  world.registry->register_backend(cpu("ACME"), path);
  const std::vector<std::string> list = world.list();
  const uint64_t generation = world.registry->generation();
  world.registry->register_backend(cpu("ACME"), path);
  CHECK(world.list() == list);
  CHECK(world.registry->generation() == generation);
  CHECK(world.opened.at(path) == 1);
}

TEST_CASE("a_cleared_override_comes_back_by_the_plugins_id") {
  World world("CPU_ATTN", "com.acme");
  world.add({plain_plugin("org.cpu", "CPU_ATTN"), plain_plugin("com.acme", "CPU_ATTN")});
  world.registry->clear_override(cpu("CPU_ATTN"));
  CHECK(world.answerer(cpu("CPU_ATTN")) == "org.cpu");
  world.registry->register_backend(cpu("CPU_ATTN"), "com.acme");
  CHECK(world.answerer(cpu("CPU_ATTN")) == "com.acme");
}

TEST_CASE("a_handle_makes_what_lies_beneath_draining_until_it_is_gone") {
  World world("CPU_ATTN", "com.acme");
  world.add({plain_plugin("org.cpu", "CPU_ATTN")});
  std::optional<OpenBackend> impl_of_a_group = world.registry->acquire(cpu("CPU_ATTN")).backend;
  world.registry->register_backend(cpu("CPU_ATTN"), world.put(plain_plugin("com.acme", "CPU_ATTN")));

  CHECK(world.registry->snapshot().backends.at(0).beneath.at(0).state == State::kDraining);
  CHECK(world.registry->snapshot().plugins.at(0).state == State::kDraining);
  CHECK(impl_of_a_group->plugin->id == "org.cpu");
  impl_of_a_group.reset();
  CHECK(world.registry->snapshot().backends.at(0).beneath.at(0).state == State::kRetired);
  CHECK(world.registry->snapshot().plugins.at(0).state == State::kRetired);
  CHECK(world.registry->snapshot().plugins.at(1).state == State::kOpen);
}

TEST_CASE("a_failed_override_is_not_replaced_by_what_lies_beneath_until_it_is_cleared") {
  World world("CPU_ATTN", "com.acme");
  FakePlugin acme = plain_plugin("com.acme", "CPU_ATTN");
  acme.fails = "needs AMX";
  world.add({plain_plugin("org.cpu", "CPU_ATTN"), acme});
  const Problem problem;
  for (int i = 0; i < 2; ++i) {
    const anyattn::selector::Decision must = world.select(problem, "CPU_ATTN");
    CHECK(must.error == anyattn::selector::Error::kPluginFailed);
    CHECK(contains(must.text, "needs AMX"));
  }
  // Nobody asked for the name: the order goes on to what there is, and the failure stands in the candidates.
  const anyattn::selector::Decision automatic = world.select(problem);
  CHECK(automatic.decode().backend.plugin->id == "org.cpu");
  CHECK(automatic.candidates.at(0).plugin == "com.acme");
  CHECK(automatic.candidates.at(0).verdict == anyattn::selector::Verdict::kFailed);

  world.registry->clear_override(cpu("CPU_ATTN"));
  CHECK(world.select(problem, "CPU_ATTN").decode().backend.plugin->id == "org.cpu");
}

TEST_CASE("wrong_calls_say_what_is_there") {
  World world;
  world.add({plain_plugin("org.cpu", "CPU_ATTN")});
  const auto text_of = [&](auto&& call) {
    try {
      call();
    } catch (const StatusError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  Registry& registry = *world.registry;
  CHECK(contains(text_of([&] { registry.register_backend(cpu("lower"), "org.cpu"); }), "allowed: [A-Z][A-Z0-9_]*"));
  CHECK(contains(text_of([&] { registry.register_backend({"X", 77}, "org.cpu"); }), "device kind 77"));
  CHECK(contains(text_of([&] { registry.register_backend(cpu("X"), ""); }), "where is empty"));
  CHECK(contains(text_of([&] { registry.register_backend(cpu("X"), "org.gpu"); }), "no plugin org.gpu: there are org.cpu"));
  CHECK(contains(text_of([&] { registry.register_backend(cpu("X"), "org.cpu"); }),
                 "plugin org.cpu has CPU_ATTN on cpu, not X on cpu"));
  CHECK(
      contains(text_of([&] { registry.register_backend(cpu("X"), "/none.so"); }), "/none.so failed at discover: no such file"));
  CHECK(contains(world.answerer(cpu("X")), "no such file"));
  CHECK(contains(text_of([&] { registry.clear_override(cpu("CPU_ATTN")); }), "is not overridden: it belongs to org.cpu"));
  CHECK(contains(text_of([&] { registry.clear_override(cpu("NONE")); }), "nobody has the name"));
  const std::string other = world.put(plain_plugin("org.other", "OTHER"));
  CHECK(contains(text_of([&] { registry.register_backend(cpu("Y"), other); }), "it has OTHER on cpu, not Y on cpu"));
  CHECK(world.list().size() == 1);
}
