// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/hangup.h"
#include "common/interrupt.h"
#include "common/runtime.h"
#include "common/terminal.h"
#include "serving/replay.h"

namespace anyattn::tools {
namespace {

constexpr uint32_t kBuiltinRequests = 100;
constexpr uint32_t kBuiltinDrawn = 20;  // times as many, where --max-prompt skips some

// The requests the flags ask for.
Trace select_requests(const RunOptions& options, uint64_t* skipped) {
  const bool builtin = options.trace.starts_with("builtin:");
  uint32_t wanted = options.requests;
  if (builtin && wanted == 0) wanted = kBuiltinRequests;
  Trace trace =
      load_trace(options.trace, options.format, options.seed, options.max_prompt > 0 ? wanted * kBuiltinDrawn : wanted);
  Trace kept{trace.name, {}};
  for (TraceRequest& request : trace.requests) {
    if (wanted > 0 && kept.requests.size() == wanted) break;
    if (options.max_prompt > 0 && request.prompt_tokens > options.max_prompt) {
      ++*skipped;
      continue;
    }
    kept.requests.push_back(std::move(request));
  }
  if (kept.requests.empty()) {
    throw Failure(kExitUsage, fmt::format("{}: --max-prompt {} leaves no request", trace.name, options.max_prompt));
  }
  return kept;
}

void check_options(const RunOptions& options) {
  if (options.token_budget == 0 || options.max_num_reqs == 0 || options.max_num_reqs > options.token_budget) {
    throw Failure(kExitUsage,
                  fmt::format("--token-budget {}: allowed: at least --max-reqs {}, since each running request takes a "
                              "token a step; lower that or raise this",
                              options.token_budget, options.max_num_reqs));
  }
}

// A line on standard error that overwrites itself; nothing where that is no terminal.
class Progress {
 public:
  Progress() : shown_(terminal_of(2).interactive) {}
  ~Progress() { clear(); }
  void show(const Replay& replay) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    fmt::print(stderr, "\r\x1b[K{:5.1f} %  step {}, {} running", 100 * std::min(replay.progress(), 1.0), replay.steps(),
               replay.num_running());
    std::fflush(stderr);
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
    shown_ = false;
  }

 private:
  bool shown_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace

int run(const RunOptions& options) {
  check_options(options);
  const JsonOutput json(options.common.json);
  uint64_t skipped = 0;
  Trace trace = select_requests(options, &skipped);
  HangupReload hangup;
  const Runtime runtime = open_runtime(options.common, options.target.backend);
  ReplayOptions replay_options;
  replay_options.model = {options.model,
                          options.models_file,
                          dtype_of(options.target.dtype, ANYATTN_DTYPE_NONE),
                          options.target.kv_cache_dtype,
                          options.target.block_size,
                          options.layers};
  replay_options.device = options.target.device;
  replay_options.token_budget = options.token_budget;
  replay_options.max_num_reqs = options.max_num_reqs;
  replay_options.blocks = options.blocks;
  replay_options.seed = options.seed;
  replay_options.saturate = options.saturate;
  replay_options.graphs = options.graphs != "off";
  Replay replay(runtime, replay_options, std::move(trace));
  catch_interrupt();
  hangup.watch(runtime);
  Progress progress;
  while (!replay.done() && !interrupted()) {
    replay.step();
    progress.show(replay);
  }
  progress.clear();
  RunReport report = replay.report();
  report.interrupted = !replay.done();
  report.requests_skipped += skipped;
  if (json.table()) fmt::print("{}", report_text(report, terminal_of(1)));
  json.write(report_json(report));
  if (report.interrupted) return kExitInterrupted;
  return report.checks.rows_outside == 0 ? kExitOk : kExitFailed;
}

}  // namespace anyattn::tools
