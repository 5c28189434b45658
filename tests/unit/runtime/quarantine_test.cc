// SPDX-License-Identifier: Apache-2.0
// A backend that fails again and again: who is left, when, for whom, and what is said; with two plugins of one cache layout.
#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "library_steps.h"
#include "runtime_fixture.h"

using anyattn::Runtime;
using fake::ConfigFile;
using nlohmann::json;

namespace {

// FAKE_GOOD comes first and throws in forward; NOOP_ATTN takes the same blocks.
constexpr const char* kFails = ", options: {in: forward}";

std::string first_backend(const Runtime& runtime) { return json::parse(runtime.list())["backends"][0]["name"]; }

json row(const Runtime& runtime, const std::string& name) {
  const json list = json::parse(runtime.list());
  for (const json& backend : list["backends"])
    if (backend["name"] == name) return backend;
  return {};
}

json candidate(const Runtime& runtime, const std::string& name) {
  const anyattn::Problem problem = fake::small_problem();
  const json answer = json::parse(runtime.explain(problem.view()));
  for (const json& one : answer["candidates"])
    if (one["backend"] == name) return one;
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a_backend_that_fails_again_and_again_is_left_at_the_next_update") {
  FakeCounters counters;
  const ConfigFile config({{"good", kFails}, {"noop", fake::counting(counters)}});
  const Runtime runtime = fake::open_runtime(config);
  const std::string failing = first_backend(runtime);
  fake::LibrarySteps steps(runtime, "");
  CHECK(steps.backend() == failing);
  // Two layers: two failing calls a step.
  for (uint64_t i = 0; i < 2; ++i) CHECK(steps.fresh_step(i) == ANYATTN_INTERNAL);
  CHECK(counters.impls_created == 0);
  CHECK(row(runtime, failing)["quarantined"].is_null());
  for (uint64_t i = 2; i < 20; ++i) CHECK(steps.fresh_step(i) == ANYATTN_OK);
  CHECK(steps.backend() == "NOOP_ATTN");
  CHECK(counters.impls_created == 1);
  CHECK(counters.forwards > 0);

  const std::string why = row(runtime, failing)["quarantined"];
  CHECK(contains(why, "failed 4 calls in a row"));
  CHECK(contains(why, "the fake throws"));
  CHECK(row(runtime, "NOOP_ATTN")["quarantined"].is_null());
  const json passed_over = candidate(runtime, failing);
  CHECK(passed_over["verdict"] == "refused");
  CHECK(contains(passed_over["reasons"][0]["hint"], "failed 4 calls in a row"));
  CHECK(candidate(runtime, "NOOP_ATTN")["verdict"] == "chosen");
  // New groups do not take it; who names it gets it; a reload begins anew.
  CHECK(fake::LibrarySteps(runtime, "").backend() == "NOOP_ATTN");
  CHECK(fake::LibrarySteps(runtime, failing).backend() == failing);
  anyattn::check(anyattn_runtime_reload, runtime.get());
  CHECK(row(runtime, failing)["quarantined"].is_null());
}

TEST_CASE("a_backend_that_was_named_is_never_left") {
  for (const bool by_call : {true, false}) {
    const ConfigFile config({{"good", kFails}, {"noop", ""}});
    const std::string failing = first_backend(fake::open_runtime(config));
    const Runtime runtime = fake::open_runtime(config, by_call ? "" : failing);
    fake::LibrarySteps steps(runtime, by_call ? failing : "");
    for (uint64_t i = 0; i < 10; ++i) CHECK(steps.fresh_step(i) == ANYATTN_INTERNAL);
    CHECK(steps.backend() == failing);
    CHECK(row(runtime, failing)["quarantined"].is_null());
  }
}

TEST_CASE("with_nobody_to_take_over_updates_are_refused_with_the_reason") {
  // block_sizes accepts blocks of 32 and 64 only: other layouts than FAKE_GOOD's 16.
  const ConfigFile config({{"good", kFails}, {"block_sizes", ""}}, "selection: {order: {cpu: [FAKE_GOOD]}}\n");
  const Runtime runtime = fake::open_runtime(config);
  fake::LibrarySteps steps(runtime, "");
  const std::string failing = steps.backend();
  for (uint64_t i = 0; i < 2; ++i) CHECK(steps.fresh_step(i) == ANYATTN_INTERNAL);
  for (uint64_t i = 2; i < 5; ++i) {
    CHECK(steps.fresh_step(i) == ANYATTN_UNSUPPORTED);
    const std::string text = steps.last_text();
    INFO(text);
    for (const char* part : {"failed 4 calls in a row", "the fake throws", "nobody takes over", "name a backend"})
      CHECK(contains(text, part));
  }
  CHECK(steps.backend() == failing);
  CHECK(row(runtime, failing)["quarantined"].is_null());
}

TEST_CASE("quarantine_after_0_leaves_nobody") {
  const ConfigFile config({{"good", kFails}, {"noop", ""}}, "selection: {quarantine_after: 0}\n");
  const Runtime runtime = fake::open_runtime(config);
  fake::LibrarySteps steps(runtime, "");
  for (uint64_t i = 0; i < 10; ++i) CHECK(steps.fresh_step(i) == ANYATTN_INTERNAL);
}

TEST_CASE("under_a_selection_lock_nobody_takes_over") {
  const ConfigFile written({{"good", kFails}, {"noop", ""}});
  const anyattn::Problem problem = fake::small_problem();
  const std::string lock_file = written.path() + ".lock.json";
  std::ofstream(lock_file) << json{{"lock", 1},
                                   {"selections", {json::parse(fake::open_runtime(written).explain(problem.view()))["lock"]}}};
  const ConfigFile config({{"good", kFails}, {"noop", ""}}, "selection: {lock: " + lock_file + "}\n");
  const Runtime runtime = fake::open_runtime(config);
  fake::LibrarySteps steps(runtime, "");
  const std::string failing = steps.backend();
  for (uint64_t i = 0; i < 2; ++i) CHECK(steps.fresh_step(i) == ANYATTN_INTERNAL);
  CHECK(steps.fresh_step(2) == ANYATTN_UNSUPPORTED);
  const std::string text = steps.last_text();
  INFO(text);
  for (const char* part :
       {"failed 4 calls in a row", "nobody takes over", "selection.lock", ".lock.json allows no other backend"})
    CHECK(contains(text, part));
  CHECK(steps.backend() == failing);
  CHECK(row(runtime, failing)["quarantined"].is_null());
}
