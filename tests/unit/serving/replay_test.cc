// SPDX-License-Identifier: Apache-2.0
// Whole runs of small models on the CPU backends: every kind of layer, reuse, preemption, chunked contexts, and that a wrong
// backend is caught.
#include "serving/replay.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "anyattn/runtime.hpp"
#include "common/failure.h"

namespace {

using namespace anyattn::tools;

anyattn::Runtime cpu_runtime() {
  return anyattn::Runtime({std::string(ANYATTN_BINARY_DIR) + "/config/default.yaml", "", "error", 2});
}

ReplayOptions options_of(const std::string& model) {
  ReplayOptions options;
  options.model.id = model;
  options.model.models_file = std::string(ANYATTN_SOURCE_DIR) + "/tests/unit/serving/models.yaml";
  options.token_budget = 96;
  options.max_num_reqs = 6;
  return options;
}

// Prompts that share blocks of 512 tokens, and some that share nothing.
Trace small_trace() {
  return {"small",
          {{0, 60, 12, {}},
           {0, 530, 6, {1, 2}},
           {0.0001, 700, 9, {1, 3}},
           {0.0002, 33, 30, {}},
           {0.0003, 600, 4, {1, 2}},
           {0.0004, 90, 20, {}}}};
}

RunReport serve(const ReplayOptions& options, const Trace& trace, const anyattn::Runtime& runtime = cpu_runtime()) {
  Replay replay(runtime, options, trace);
  while (!replay.done()) replay.step();
  return replay.report();
}

void check_good(const RunReport& report) {
  CHECK(report.requests_done == 6);
  CHECK(report.decode_tokens == 75);  // each output but its last token is fed back
  CHECK(report.checks.rows >= report.step_ms.size() * report.kinds.size());
  CHECK(report.checks.rows_outside == 0);
  CHECK(report.checks.worst_error_over_bound > 0);
  CHECK(report.checks.worst_error_over_bound <= 1);
  CHECK(report.checks.cached_prefix_rows > 0);
  CHECK(report.kv.reused_tokens >= 512);
  CHECK(report.attention_s > 0);
  CHECK(report.kernels_s > 0);
  CHECK(report.cache_update_s > 0);
  CHECK(report.attention_s == doctest::Approx(report.kernels_s + report.cache_update_s + report.metadata_s + report.waits_s));
  CHECK(report.busy_s == doctest::Approx(report.attention_s + report.tables_s + report.scheduling_s));
  CHECK(report.outside_shares.size() == report.step_ms.size());
  CHECK(outside_kernels(report) > 0);
  CHECK(outside_kernels(report) < 1);
  CHECK(report.busy_s <= report.virtual_s);
}

TEST_CASE("replay_of_each_kind_of_layer_stays_within_the_bound") {
  for (const char* model : {"tiny/full", "tiny/window", "tiny/alibi", "tiny/mla"}) {
    for (const uint32_t dtype : {ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16}) {
      CAPTURE(model);
      CAPTURE(dtype);
      ReplayOptions options = options_of(model);
      options.model.dtype = dtype;
      const RunReport report = serve(options, small_trace());
      CAPTURE(report.checks.first_failure);
      check_good(report);
      if (std::string(model) == "tiny/window") {
        CHECK(report.kinds.size() == 2);
        CHECK(report.checks.window_edge_rows > 0);
      }
      CHECK(report.kinds[0].backend == (std::string(model) == "tiny/mla" ? "CPU_MLA" : "CPU_ATTN"));
    }
  }
}

TEST_CASE("replay_with_too_few_blocks_preempts_and_still_computes_the_same") {
  for (const char* model : {"tiny/full", "tiny/mla"}) {
    CAPTURE(model);
    ReplayOptions options = options_of(model);
    options.model.block_size = 16;
    options.model.layers = 1;
    options.blocks = 24;  // 384 tokens, where six requests grow to 600
    options.saturate = true;
    const Trace trace{"t", std::vector<TraceRequest>(6, {0, 40, 60, {}})};
    const RunReport report = serve(options, trace);
    CAPTURE(report.checks.first_failure);
    CHECK(report.preemptions > 0);
    CHECK(report.requests_done == 6);
    CHECK(report.decode_tokens <= 6 * 59);
    CHECK(report.prefill_tokens + report.decode_tokens > 6 * 99);  // some tokens were computed twice
    CHECK(report.checks.rows_outside == 0);
    CHECK(report.kinds[0].layers == 1);
  }
}

TEST_CASE("replay_counts_tokens_and_layers_as_asked") {
  ReplayOptions options = options_of("tiny/full");
  options.model.layers = 2;
  const RunReport report = serve(options, {"t", {{0, 100, 1, {}}, {5, 50, 3, {}}}});
  CHECK(report.prefill_tokens == 150);
  CHECK(report.decode_tokens == 2);
  CHECK(report.kinds[0].layers == 2);
  CHECK(report.virtual_s >= 5);
  CHECK(report.step_ms.size() == 5);  // 96 + 4, 50, 1, 1
}

TEST_CASE("replay_is_the_same_work_for_the_same_seed") {
  ReplayOptions options = options_of("tiny/window");
  options.saturate = true;  // without stamps nothing depends on how long steps take
  const RunReport first = serve(options, small_trace());
  const RunReport second = serve(options, small_trace());
  options.seed = 1;
  const RunReport third = serve(options, small_trace());
  CHECK(first.checks.worst_error_over_bound == second.checks.worst_error_over_bound);
  CHECK(first.checks.worst_error_over_bound != third.checks.worst_error_over_bound);
  CHECK(first.step_ms.size() == second.step_ms.size());
}

// A runtime over the plugins that `plugins` says, a mapping of YAML.
anyattn::Runtime runtime_of(const std::string& plugins) {
  const auto folder = std::filesystem::temp_directory_path() / ("anyattn_replay_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "config.yaml";
  std::ofstream(file) << "version: 1\nplugins: " << plugins << "\n";
  anyattn::Runtime runtime({file.string(), "", "error", 2});
  std::filesystem::remove_all(folder);
  return runtime;
}

// Over one plugin of the conformance tests: naive, or a mutant of it.
anyattn::Runtime runtime_of_naive(const std::string& name) {
  return runtime_of("{search: [" + std::string(ANYATTN_NAIVE_DIR) + "/" + name + "]}");
}

// Over the pretended device; frozen: its backend keeps the batch that a capture saw.
anyattn::Runtime runtime_of_pretended(bool frozen) {
  return runtime_of("{entries: [{id: org.anyattn.pretend, file: " + std::string(ANYATTN_PRETEND_DIR) +
                    "/anyattn_pretend.so, options: {frozen: " + (frozen ? "'yes'" : "'no'") + "}}], search: []}");
}

TEST_CASE("replay_on_a_device_with_graphs_runs_small_steps_as_replays") {
  const anyattn::Runtime runtime = runtime_of_pretended(false);
  ReplayOptions options = options_of("tiny/window");
  options.device = "cuda:0";
  options.token_budget = 640;  // steps of more than 512 rows have no graph
  const RunReport report = serve(options, small_trace(), runtime);
  CAPTURE(report.checks.first_failure);
  check_good(report);
  CHECK(report.device == "cuda:0");
  CHECK(report.kinds[0].backend == "QUEUED_ATTN");
  CHECK(report.replayed_steps > report.step_ms.size() / 2);
  CHECK(report.replayed_steps < report.step_ms.size());
  // For each kind of layer: rows in powers of two, up to 6 of decode and to 512 of any step.
  CHECK(report.captured_graphs > report.kinds.size());
  CHECK(report.captured_graphs <= 14 * report.kinds.size());

  options = options_of("tiny/full");
  options.device = "cuda:0";
  options.graphs = false;
  const RunReport eager = serve(options, small_trace(), runtime);
  check_good(eager);
  CHECK(eager.replayed_steps == 0);
  CHECK(eager.captured_graphs == 0);
}

TEST_CASE("replay_on_a_device_with_graphs_replays_mla_steps_that_only_decode") {
  ReplayOptions options = options_of("tiny/mla");
  options.device = "cuda:0";
  const RunReport report = serve(options, small_trace(), runtime_of_pretended(false));
  CAPTURE(report.checks.first_failure);
  check_good(report);
  CHECK(report.kinds[0].backend == "QUEUED_MLA");
  CHECK(report.replayed_steps > 0);
  CHECK(report.replayed_steps < report.step_ms.size());  // those with a prefill are not
  CHECK(report.captured_graphs > 0);
  CHECK(report.captured_graphs <= 4);  // 1, 2, 4 and 6 rows
}

TEST_CASE("replay_catches_a_backend_that_keeps_what_a_capture_saw") {
  ReplayOptions options = options_of("tiny/full");
  options.device = "cuda:0";
  const RunReport report = serve(options, small_trace(), runtime_of_pretended(true));
  CHECK(report.replayed_steps > 0);
  CHECK(report.checks.rows_outside > 0);
}

TEST_CASE("replay_passes_another_right_backend_and_catches_wrong_ones") {
  struct BackendCase {
    const char* plugin;
    const char* model;
    bool right;
    bool reads_outside;  // of the cache: the address sanitizer ends the process before the check can speak
  };
  const BackendCase cases[] = {{"naive", "tiny/window", true, false},
                               {"naive", "tiny/mla", true, false},
                               {"window_off_by_one", "tiny/window", false, true},
                               {"tail_of_last_block", "tiny/full", false, true},
                               {"head_group", "tiny/full", false, false}};
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kGuarded = true;
#else
  constexpr bool kGuarded = false;
#endif
  for (const BackendCase& c : cases) {
    if (kGuarded && c.reads_outside) continue;
    CAPTURE(c.plugin);
    CAPTURE(c.model);
    const RunReport report = serve(options_of(c.model), small_trace(), runtime_of_naive(c.plugin));
    CAPTURE(report.checks.first_failure);
    CHECK(report.kinds[0].plugin == "org.anyattn.naive");
    CHECK((report.checks.rows_outside == 0) == c.right);
    CHECK((report.checks.worst_error_over_bound <= 1) == c.right);
    CHECK(report.checks.first_failure.empty() == c.right);
  }
}

TEST_CASE("replay_refuses_models_and_traces_it_cannot_serve") {
  const anyattn::Runtime runtime = cpu_runtime();
  CHECK_THROWS_AS(Replay(runtime, options_of("tiny/none"), small_trace()), Failure);
  const Trace too_long{"t", {{0, 4090, 10, {}}}};
  CHECK_THROWS_WITH_AS(Replay(runtime, options_of("tiny/full"), too_long),
                       "t: no request is left that tiny/full can hold: its context is 4096 tokens", Failure);
}

}  // namespace
