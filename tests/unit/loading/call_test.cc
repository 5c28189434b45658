// SPDX-License-Identifier: Apache-2.0
// A throwing plugin, slot by slot: the host survives, names the slot and goes on.
#include "loader/call.h"

#include <array>
#include <utility>

#include "anyattn/util.h"
#include "fake_plugins/counters.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::loader::call;
using anyattn::loader::call_void;
using anyattn::loader::Loader;
using anyattn::loader::Opened;

struct ErrorText {
  std::array<char, 512> buffer{};
  anyattn_error error{buffer.data(), static_cast<uint32_t>(buffer.size()), 0, 0, 0};
  std::string text() const { return buffer.data(); }
};

// What is thrown, and what the text says of it.
struct Thrown {
  const char* what;
  const char* said;
};
constexpr std::array<Thrown, 3> kThrown{{{"runtime_error", "threw std::runtime_error: the fake throws"},
                                         {"bad_alloc", "threw std::bad_alloc"},
                                         {"int", "threw int"}}};

std::vector<anyattn::config::Option> wish(const std::string& slot, const char* what) {
  return {fakes::option("in", slot), fakes::option("what", what)};
}

// Calls one slot after the other as a runtime would; the status and text of the slot that fails.
struct Outcome {
  std::string slot;  // "": none failed
  int32_t status = ANYATTN_OK;
  std::string text;
};

Outcome walk(const anyattn::loader::Plugin& plugin) {
  const auto& backend = plugin.backends.at(0);
  const anyattn_backend& table = backend.table;
  const anyattn_host* host = plugin.host();
  const auto callee = [&](const char* slot) { return anyattn::loader::Callee{backend.name.c_str(), slot}; };
  anyattn_device_facts facts{};
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_kv_heads = problem.num_q_heads = 1;
  problem.head_size = problem.head_size_v = 64;
  problem.block_size = 16;
  problem.kv_cache_dtype = "float32";
  anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, nullptr, [](void*, const anyattn_reason*) {}};
  anyattn_support_report report{};
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  anyattn_limits limits{ANYATTN_LIMITS_SIZE, 1, 1, 1, 1, 1};
  anyattn_memory memory{};
  memory.struct_size = ANYATTN_MEMORY_SIZE;
  uint32_t graph_level = 0;
  anyattn_impl* impl = nullptr;
  anyattn_metadata* metadata = nullptr;
  const anyattn_spec_fn accept = [](void*, const anyattn_kv_cache_spec*) {};

  Outcome outcome;
  const auto step = [&](const char* slot, auto&& run) {
    if (!outcome.slot.empty()) return;
    ErrorText error;
    const int32_t status = run(slot, &error.error);
    if (status != ANYATTN_OK) outcome = {slot, status, error.text()};
  };
  step("supports", [&](auto* slot, auto* error) {
    return call(callee(slot), error, table.supports, host, &facts, &problem, &sink, &report);
  });
  step("kv_cache_spec", [&](auto* slot, auto* error) {
    return call(callee(slot), error, table.kv_cache_spec, host, &facts, &problem, accept, nullptr);
  });
  step("impl_create", [&](auto* slot, auto* error) {
    return call(callee(slot), error, table.impl_create, host, &facts, &problem, nullptr, &impl);
  });
  step("memory", [&](auto* slot, auto* error) { return call(callee(slot), error, table.memory, impl, &limits, &memory); });
  step("warmup", [&](auto* slot, auto* error) {
    return call(callee(slot), error, table.warmup, impl, &limits, nullptr, nullptr, &graph_level);
  });
  step("metadata_create", [&](auto* slot, auto* error) {
    return call(callee(slot), error, table.metadata_create, impl, &limits, ANYATTN_METADATA_NORMAL, nullptr, nullptr,
                &metadata);
  });
  step("metadata_update",
       [&](auto* slot, auto* error) { return call(callee(slot), error, table.metadata_update, metadata, nullptr, nullptr); });
  step("kv_cache_update",
       [&](auto* slot, auto* error) { return call(callee(slot), error, table.kv_cache_update, impl, nullptr); });
  step("forward", [&](auto* slot, auto* error) { return call(callee(slot), error, table.forward, impl, metadata, nullptr); });
  step("merge_states", [&](auto* slot, auto* error) { return call(callee(slot), error, table.merge_states, impl, nullptr); });
  step("update_block_table", [&](auto* slot, auto* error) {
    return call(callee(slot), error, table.update_block_table, metadata, metadata, nullptr, 0, nullptr);
  });
  step("metadata_destroy", [&](auto* slot, auto* error) {
    return call_void(callee(slot), error, table.metadata_destroy, std::exchange(metadata, nullptr));
  });
  step("impl_destroy", [&](auto* slot, auto* error) {
    return call_void(callee(slot), error, table.impl_destroy, std::exchange(impl, nullptr));
  });
  // Where a slot on the way failed, the host still destroys what was made.
  call_void(callee("metadata_destroy"), nullptr, table.metadata_destroy, metadata);
  call_void(callee("impl_destroy"), nullptr, table.impl_destroy, impl);
  return outcome;
}

}  // namespace

TEST_CASE("abi_16_exceptions_become_statuses") {
  const std::vector<std::string> slots = {"supports",    "kv_cache_spec",   "impl_create",        "memory",
                                          "warmup",      "metadata_create", "metadata_update",    "kv_cache_update",
                                          "forward",     "merge_states",    "update_block_table", "metadata_destroy",
                                          "impl_destroy"};
  for (const std::string& slot : slots) {
    for (const Thrown& thrown : kThrown) {
      CAPTURE(slot);
      CAPTURE(thrown.what);
      fakes::TestHost host;
      const Opened opened = Loader(host.services()).open(fakes::candidate("thrower", wish(slot, thrown.what)));
      REQUIRE(opened.plugin);
      const Outcome outcome = walk(*opened.plugin);
      CHECK(outcome.slot == slot);
      CHECK(outcome.status == ANYATTN_INTERNAL);
      fakes::check_parts(outcome.text, {"FAKE_THROWER", slot, thrown.said});
    }
  }
  // The process goes on, and so does another backend.
  fakes::TestHost host;
  const Opened good = Loader(host.services()).open(fakes::candidate("good"));
  REQUIRE(good.plugin);
  CHECK(walk(*good.plugin).slot == "");
}

TEST_CASE("exception_in_the_entry_is_a_failed_negotiation") {
  for (const Thrown& thrown : kThrown) {
    CAPTURE(thrown.what);
    fakes::TestHost host;
    const Opened opened =
        Loader(host.services()).open(fakes::candidate("thrower", wish("anyattn_plugin_entry_v0", thrown.what)));
    REQUIRE(opened.failure.has_value());
    CHECK(opened.failure->status == ANYATTN_INTERNAL);
    fakes::check_parts(anyattn::discovery::text(*opened.failure),
                       {"org.anyattn.fake.thrower", "negotiate", "anyattn_plugin_entry_v0", thrown.said});
  }
}

TEST_CASE("exception_in_shutdown_is_a_line_of_the_log") {
  fakes::TestHost host;
  {
    Loader loader(host.services());
    REQUIRE(loader.open(fakes::candidate("block_sizes", wish("shutdown", "runtime_error"))).plugin);
  }
  REQUIRE(host.lines().size() == 1);
  fakes::check_parts(host.lines()[0], {"org.anyattn.fake.block_sizes", "shutdown", "threw std::runtime_error"});
}

TEST_CASE("absent_slot_and_silent_failure_get_a_text") {
  ErrorText error;
  int32_t (*absent)(int, anyattn_error*) = nullptr;
  CHECK(call({"SOME_ATTN", "update_block_table"}, &error.error, absent, 1) == ANYATTN_UNIMPLEMENTED);
  CHECK(error.text() == "SOME_ATTN has no update_block_table");
  CHECK(call({"SOME_ATTN", "update_block_table"}, nullptr, absent, 1) == ANYATTN_UNIMPLEMENTED);

  int32_t (*silent)(int, anyattn_error*) = [](int, anyattn_error*) -> int32_t { return ANYATTN_DEVICE_ERROR; };
  CHECK(call({"SOME_ATTN", "warmup"}, &error.error, silent, 1) == ANYATTN_DEVICE_ERROR);
  CHECK(error.text() == "SOME_ATTN: warmup failed with status 6 and gave no reason");
  CHECK(error.error.status == ANYATTN_DEVICE_ERROR);
  CHECK(call({"SOME_ATTN", "warmup"}, nullptr, silent, 1) == ANYATTN_DEVICE_ERROR);

  int32_t (*own_text)(int, anyattn_error*) = [](int, anyattn_error* slot) -> int32_t {
    return anyattn_error_set(slot, ANYATTN_OUT_OF_MEMORY, "needs 3 bytes");
  };
  CHECK(call({"SOME_ATTN", "warmup"}, &error.error, own_text, 1) == ANYATTN_OUT_OF_MEMORY);
  CHECK(error.text() == "needs 3 bytes");

  void (*absent_destroy)(int*) = nullptr;
  CHECK(call_void({"SOME_ATTN", "impl_destroy"}, &error.error, absent_destroy, nullptr) == ANYATTN_OK);
}

TEST_CASE("plugin_that_cannot_make_an_impl_says_so_each_time_in_its_own_words") {
  fakes::TestHost host;
  const Opened opened = Loader(host.services()).open(fakes::candidate("create_fails"));
  REQUIRE(opened.plugin);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Outcome outcome = walk(*opened.plugin);
    CHECK(outcome.slot == "impl_create");
    CHECK(outcome.status == ANYATTN_DEVICE_ERROR);
    fakes::check_parts(outcome.text, {"licence server is on fire"});
  }
}
