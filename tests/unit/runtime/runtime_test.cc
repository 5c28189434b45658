// SPDX-License-Identifier: Apache-2.0
// The whole library from outside: only public headers, the shared object, fake plugins and a YAML file.
#include "anyattn/runtime.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "heap_count.h"
#include "library_steps.h"
#include "runtime_fixture.h"

using anyattn::Group;
using anyattn::Runtime;
using anyattn::RuntimeError;
using fake::ConfigFile;
using nlohmann::json;

namespace {

struct Failure {
  int32_t status = ANYATTN_OK;
  std::string text;
};
Failure failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const RuntimeError& error) {
    return {error.status(), error.what()};
  }
  return {};
}

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

bool has_keys(const json& object, std::initializer_list<const char*> wanted) {
  const std::set<std::string> names = keys(object);
  for (const char* key : wanted) {
    if (names.count(key) == 0) {
      MESSAGE("missing key ", key, " in ", object.dump());
      return false;
    }
  }
  return true;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("list_has_the_keys_that_scripts_rely_on") {
  const ConfigFile config({{"noop", ""}, {"wrong_major", ""}});
  const Runtime runtime = fake::open_runtime(config);
  const json list = json::parse(runtime.list());
  REQUIRE(has_keys(list, {"generation", "backends", "skipped", "plugins"}));
  CHECK(list["generation"] == runtime.generation());
  REQUIRE(list["backends"].size() == 1);
  const json& backend = list["backends"][0];
  CHECK(has_keys(backend, {"name", "device", "plugin", "path", "state", "overrides", "overridden_by", "beneath"}));
  CHECK(backend["name"] == "NOOP_ATTN");
  CHECK(backend["device"] == "cpu");
  CHECK(backend["plugin"] == "org.anyattn.fake.noop");
  CHECK(backend["path"] == std::filesystem::canonical(ConfigFile::plugin_path("noop")).string());
  CHECK(backend["state"] == "listed");
  REQUIRE(list["skipped"].size() == 1);
  CHECK(has_keys(list["skipped"][0], {"path", "stage", "reason", "remedy"}));
  CHECK(contains(list["skipped"][0]["reason"], "anyattn_plugin_entry_v7"));
  REQUIRE(list["plugins"].size() == 1);
  CHECK(has_keys(list["plugins"][0], {"id", "vendor", "version", "license", "path", "abi_min", "abi_max", "state", "origin"}));
  CHECK(list["plugins"][0]["abi_max"] == "0.1");
  CHECK(list["plugins"][0]["version"] == "1.10");
}

TEST_CASE("explain_has_the_keys_that_scripts_rely_on") {
  const ConfigFile config({{"noop", ""}, {"mla", ""}});
  const Runtime runtime = fake::open_runtime(config);
  anyattn::Problem problem = fake::small_problem();
  problem.set(ANYATTN_FEATURE_WINDOW).fields.window_left = 127;
  problem.fields.window_right = -1;
  const json explained = json::parse(runtime.explain(problem.view(), "cpu"));
  REQUIRE(has_keys(explained, {"problem", "device", "chosen", "origin", "candidates"}));
  CHECK(explained["chosen"] == "NOOP_ATTN");
  CHECK(explained["device"] == "cpu:0");
  CHECK(explained["problem"]["num_q_heads"] == 8);
  CHECK(explained["problem"]["q_dtype"] == "float32");
  CHECK(explained["problem"]["kv_cache_dtype"] == "float32");  // "auto" was filled in
  CHECK(explained["problem"]["block_size"].get<int>() > 0);
  CHECK(explained["problem"]["window_left"] == 127);
  CHECK(explained["problem"]["logits_soft_cap"].is_null());  // not asked
  CHECK(explained["problem"]["features"] == json::array({"window"}));
  std::set<std::string> verdicts;  // of the plugins that are there; names of selection.order without one are listed too
  for (const json& candidate : explained["candidates"]) {
    CHECK(has_keys(candidate, {"backend", "plugin", "stage", "verdict", "reasons"}));
    if (!candidate["plugin"].is_null()) verdicts.insert(candidate["verdict"].get<std::string>());
    if (candidate["verdict"] == "chosen") {
      CHECK(has_keys(candidate["report"], {"block_size", "query_lengths", "decode_threshold", "graph_level", "lse_bases"}));
      continue;
    }
    REQUIRE(candidate["reasons"].size() >= 1);
    CHECK(has_keys(candidate["reasons"][0], {"id", "field", "wanted", "allowed", "hint"}));
  }
  CHECK(verdicts == std::set<std::string>{"chosen", "refused"});
}

TEST_CASE("explain_answers_although_nothing_was_chosen") {
  const ConfigFile config({{"mla", ""}});
  const Runtime runtime = fake::open_runtime(config);
  const anyattn::Problem problem = fake::small_problem();
  const json explained = json::parse(runtime.explain(problem.view()));
  CHECK(explained["chosen"].is_null());
  CHECK(explained["error"].is_string());
  CHECK(contains(explained["error"], "FAKE_MLA"));
  const json unknown = json::parse(runtime.explain(problem.view(), "cpu", "NO_SUCH_ATTN"));
  CHECK(unknown["chosen"].is_null());
  CHECK(contains(unknown["error"], "NO_SUCH_ATTN"));

  anyattn::Problem wrong = fake::small_problem();
  wrong.fields.num_kv_heads = 3;
  const Failure failure = failure_of([&] { runtime.explain(wrong.view()); });
  CHECK(failure.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(contains(failure.text, "num_kv_heads"));
}

TEST_CASE("config_and_devices_have_the_keys_that_scripts_rely_on") {
  const ConfigFile config({{"noop", ""}});
  const Runtime runtime = fake::open_runtime(config, "NOOP_ATTN");
  const json values = json::parse(runtime.config())["values"];
  bool found = false;
  for (const json& value : values) {
    CHECK(has_keys(value, {"key", "value", "origin"}));
    if (value["key"] != "selection.backend") continue;
    found = true;
    CHECK(value["value"] == "NOOP_ATTN");
    CHECK(value["origin"] == "flag");
  }
  CHECK(found);

  const json devices = json::parse(runtime.devices());
  REQUIRE(has_keys(devices, {"devices", "missing", "cpu"}));
  REQUIRE(devices["devices"].size() == 1);
  CHECK(has_keys(devices["devices"][0], {"kind", "ordinal", "name", "architecture", "memory_bytes"}));
  CHECK(devices["devices"][0]["kind"] == "cpu");
  CHECK(has_keys(devices["cpu"], {"isa", "cores", "l2_bytes"}));
  REQUIRE(devices["missing"].size() == 2);
  CHECK(has_keys(devices["missing"][0], {"kind", "reason"}));
}

TEST_CASE("devices_are_resolved_by_name_with_reasons") {
  const ConfigFile config({});
  const Runtime runtime = fake::open_runtime(config);
  CHECK(runtime.resolve_device("auto").kind == ANYATTN_DEVICE_CPU);
  CHECK(runtime.resolve_device("cpu").ordinal == 0);
  const Failure missing = failure_of([&] { runtime.resolve_device("cuda:0"); });
  CHECK(missing.status == ANYATTN_NOT_FOUND);
  CHECK(missing.text == "device cuda: not present: no loaded plugin brings a device provider for cuda");
  CHECK(failure_of([&] { runtime.resolve_device("gpu"); }).status == ANYATTN_INVALID_ARGUMENT);
  const Failure group = failure_of([&] {
    Group::Options options = fake::group_options(anyattn_problem{});
    options.device = "hip:0";
    Group(runtime, options);
  });
  CHECK(group.status == ANYATTN_NOT_FOUND);
}

TEST_CASE("runtime_reports_mistakes_of_the_file_and_goes_on_without_bad_plugins") {
  const ConfigFile misspelt({}, "selektion: {}\n");
  const Failure failure = failure_of([&] { fake::open_runtime(misspelt); });
  CHECK(failure.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(contains(failure.text, misspelt.path() + ":"));
  CHECK(contains(failure.text, "selektion"));
  CHECK(contains(failure.text, "selection"));

  Runtime::Options nowhere;
  nowhere.config_path = "/nonexistent/anyattn.yaml";
  CHECK(contains(failure_of([&] { Runtime{nowhere}; }).text, "/nonexistent/anyattn.yaml"));

  const ConfigFile required({{"noop", ""}, {"wrong_major", ", required: true"}});
  const Failure refused = failure_of([&] { fake::open_runtime(required); });
  CHECK(refused.status != ANYATTN_OK);
  CHECK(contains(refused.text, "anyattn_wrong_major.so"));

  Runtime::Options threads;
  const ConfigFile plain({});
  threads.config_path = plain.path();
  threads.num_threads = 1000000;
  CHECK(contains(failure_of([&] { Runtime{threads}; }).text, "num_threads is 1000000; allowed: 0 to 4096"));
  CHECK(anyattn_runtime_create(nullptr, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
}

TEST_CASE("group_goes_through_every_slot_of_a_plugin") {
  FakeCounters counters;
  {
    const ConfigFile config({{"noop", fake::counting(counters)}});
    const Runtime runtime = fake::open_runtime(config);
    const anyattn::Problem problem = fake::small_problem();
    Group group(runtime, fake::group_options(problem.view()));
    const anyattn_group_info info = group.info();
    CHECK(info.backend == std::string("NOOP_ATTN"));
    CHECK(info.plugin == std::string("org.anyattn.fake.noop"));
    CHECK(info.block_size > 0);
    CHECK(info.kv_cache_dtype == std::string("float32"));
    REQUIRE(info.spec != nullptr);
    CHECK(counters.impls_created == 1);
    CHECK(counters.warmups == 1);
    CHECK(counters.metadata_created == 1);
    CHECK(json::parse(runtime.list())["backends"][0]["state"] == "open");
  }
  CHECK(counters.metadata_destroyed == 1);
  CHECK(counters.impls_destroyed == 1);
}

TEST_CASE("group_refusal_holds_the_reasons_of_every_candidate") {
  const ConfigFile config({{"noop", ""}, {"mla", ""}});
  const Runtime runtime = fake::open_runtime(config);
  anyattn::Problem problem = fake::small_problem();
  problem.set(ANYATTN_FEATURE_MLA);
  problem.fields.num_kv_heads = 1;
  problem.fields.kv_lora_rank = problem.fields.head_size_v = 512;
  problem.fields.qk_rope_head_dim = 64;
  problem.fields.qk_nope_head_dim = problem.fields.v_head_dim = 128;
  problem.fields.head_size = 576;
  Group::Options options = fake::group_options(problem.view(), "mla");
  options.backend = "NOOP_ATTN";
  const Failure failure = failure_of([&] { Group(runtime, options); });
  CHECK(failure.status == ANYATTN_UNSUPPORTED);
  CHECK(contains(failure.text, "group \"mla\": "));
  CHECK(contains(failure.text, "NOOP_ATTN"));
  options.backend = "";
  CHECK(Group(runtime, options).info().is_mla == 1);
}

TEST_CASE("group_limits_and_mode_are_checked") {
  const ConfigFile config({{"noop", ""}});
  const Runtime runtime = fake::open_runtime(config);
  const anyattn::Problem problem = fake::small_problem();
  Group::Options options = fake::group_options(problem.view());
  options.limits.max_seq_len = 0;
  CHECK(contains(failure_of([&] { Group(runtime, options); }).text, "limits.max_seq_len is 0; allowed: 1 and more"));
  options = fake::group_options(problem.view());
  options.limits.max_num_tokens = 3'000'000'000;
  CHECK(contains(failure_of([&] { Group(runtime, options); }).text,
                 "limits.max_num_tokens is 3000000000; allowed: up to 1073741824"));
  options = fake::group_options(problem.view());
  options.metadata_mode = 7;
  CHECK(contains(failure_of([&] { Group(runtime, options); }).text, "metadata_mode is 7; allowed: 0 normal, 1 fast, 2 graph"));
}

TEST_CASE("locked_memory_refuses_a_group_that_needs_more") {
  const ConfigFile config({{"noop", ""}});
  Runtime runtime = fake::open_runtime(config);
  const anyattn::Problem problem = fake::small_problem();
  Group group(runtime, fake::group_options(problem.view()));
  runtime.lock_memory();
  CHECK_NOTHROW(Group(runtime, fake::group_options(problem.view(), "again")));
  Group::Options larger = fake::group_options(problem.view(), "larger");
  larger.limits.max_num_tokens = 4096;
  const Failure failure = failure_of([&] { Group(runtime, larger); });
  if (group.info().scratch_bytes == 0) return;  // the plugin wants no scratch at any size
  INFO(failure.text);
  CHECK((failure.status == ANYATTN_OUT_OF_MEMORY || failure.status == ANYATTN_OK));
}

TEST_CASE("device_memory_goes_through_the_provider") {
  const ConfigFile config({});
  const Runtime runtime = fake::open_runtime(config);
  const anyattn::Device cpu = runtime.resolve_device("cpu");
  anyattn::DeviceMemory memory(runtime, cpu, 4096);
  CHECK(reinterpret_cast<uintptr_t>(memory.get()) % 256 == 0);
  char back[4] = {};
  runtime.copy(cpu, memory.get(), "abc", 4, 1);
  runtime.copy(cpu, back, memory.get(), 4, 2);
  runtime.synchronize(cpu);
  CHECK(std::strcmp(back, "abc") == 0);
  CHECK(failure_of([&] { runtime.copy(cpu, nullptr, back, 4, 1); }).status == ANYATTN_INVALID_ARGUMENT);
  CHECK(failure_of([&] { anyattn::DeviceMemory({}), anyattn::DeviceMemory(runtime, {ANYATTN_DEVICE_CUDA, 0}, 16); }).status ==
        ANYATTN_NOT_FOUND);
}

TEST_CASE("backends_are_registered_and_cleared_at_run_time") {
  const ConfigFile config({{"noop", ""}}, "registry:\n  override: {NOOP_ATTN: org.anyattn.fake.other}\n");
  Runtime runtime = fake::open_runtime(config);
  const uint64_t before = runtime.generation();
  runtime.register_backend("FAKE_OTHER", ANYATTN_DEVICE_CPU, ConfigFile::plugin_path("other"));
  CHECK(runtime.generation() > before);
  CHECK(json::parse(runtime.list())["backends"].size() == 2);
  CHECK(failure_of([&] { runtime.register_backend("X_ATTN", ANYATTN_DEVICE_CPU, "/nonexistent/anyattn_x.so"); }).status ==
        ANYATTN_NOT_FOUND);
  CHECK(failure_of([&] { runtime.clear_override("NOOP_ATTN", ANYATTN_DEVICE_CPU); }).status != ANYATTN_OK);
}

TEST_CASE("two_runtimes_of_one_process_keep_apart") {
  FakeCounters first_counters;
  FakeCounters second_counters;
  const ConfigFile first_config({{"noop", fake::counting(first_counters)}});
  const ConfigFile second_config({{"noop", fake::counting(second_counters)}, {"good", ""}});
  const anyattn::Problem problem = fake::small_problem();
  auto first = std::make_unique<Runtime>(fake::open_runtime(first_config));
  const Runtime second = fake::open_runtime(second_config);
  Group in_first(*first, fake::group_options(problem.view()));
  Group::Options options = fake::group_options(problem.view());
  options.backend = "NOOP_ATTN";
  Group in_second(second, options);
  CHECK(first_counters.impls_created == 1);
  CHECK(second_counters.impls_created == 1);
  CHECK(json::parse(first->list())["backends"].size() == 1);
  CHECK(json::parse(second.list())["backends"].size() == 2);
  // Against the rule, and no crash: the group keeps what it needs.
  first.reset();
  CHECK(in_first.info().backend == std::string("NOOP_ATTN"));
}

TEST_CASE("runtimes_come_and_go_on_many_threads") {
  const ConfigFile config({{"noop", ""}, {"good", ""}});
  const anyattn::Problem problem = fake::small_problem();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        try {
          const Runtime runtime = fake::open_runtime(config);
          Group group(runtime, fake::group_options(problem.view()));
          if (json::parse(runtime.list())["backends"].size() != 2) ++failures;
        } catch (const RuntimeError&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("one_runtime_serves_many_threads") {
  const ConfigFile config({{"noop", ""}, {"good", ""}});
  Runtime runtime = fake::open_runtime(config);
  const anyattn::Problem problem = fake::small_problem();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        try {
          Group group(runtime, fake::group_options(problem.view()));
          if (json::parse(runtime.explain(problem.view(), "auto"))["chosen"].is_null()) ++failures;
          if (json::parse(runtime.list())["backends"].size() < 2) ++failures;
          if (t == 0 && i == 5) runtime.register_backend("FAKE_OTHER", ANYATTN_DEVICE_CPU, ConfigFile::plugin_path("other"));
        } catch (const RuntimeError& error) {
          MESSAGE(error.what());
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("parallel_for_of_the_cpp_header_takes_any_callable") {
  const ConfigFile config({});
  const Runtime runtime = fake::open_runtime(config);
  CHECK(runtime.num_workers() == 2);
  std::vector<int> seen(1000, 0);
  runtime.parallel_for(seen.size(), 10, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; ++i) ++seen[i];
  });
  CHECK(std::count(seen.begin(), seen.end(), 1) == 1000);
  CHECK(failure_of([&] { runtime.parallel_for(10, 1, [](uint64_t, uint64_t, uint32_t) { throw 1; }); }).status ==
        ANYATTN_INTERNAL);
}

TEST_CASE("library_steps_of_changing_batches_allocate_nothing") {
  FakeCounters counters;
  const ConfigFile config({{"noop", fake::counting(counters)}});
  const Runtime runtime = fake::open_runtime(config);
  fake::LibrarySteps steps(runtime, "NOOP_ATTN");
  REQUIRE(steps.step(0) == ANYATTN_OK);
  const uint64_t updates = counters.updates;
  const uint64_t forwards = counters.forwards;

  const uint64_t before = heap::allocations();
  int32_t status = ANYATTN_OK;
  for (uint64_t i = 1; i <= 1000; ++i) status |= steps.step(i);
  const uint64_t after = heap::allocations();

  CHECK(status == ANYATTN_OK);
  CHECK(after - before == 0);
  CHECK(counters.updates - updates == 1000);
  CHECK(counters.forwards - forwards == 2000);
}
