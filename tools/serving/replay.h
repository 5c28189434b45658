// SPDX-License-Identifier: Apache-2.0
// One run from end to end: model, device, groups, KV pool, then step after step until the trace is served.
// Included by run. Prints nothing; who calls it shows progress and the report.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/kv_pool.h"
#include "anyattn/streams.hpp"
#include "serving/layer_kind.h"
#include "serving/report.h"
#include "serving/row_checks.h"
#include "serving/scheduler.h"
#include "serving/step_batch.h"
#include "serving/trace.h"

namespace anyattn::tools {

struct ReplayOptions {
  ModelRequest model;
  std::string device = "auto";
  uint32_t token_budget = 2048;
  uint32_t max_num_reqs = 64;
  uint64_t blocks = 0;  // of the largest group; 0: what max_num_reqs of the longest requests need, at most a quarter of memory
  uint64_t seed = 0;
  bool saturate = false;
  bool graphs = true;  // where the device and the backend have them
};

class Replay {
 public:
  // Takes everything the run needs; throws Failure with the reason where it cannot be had. The runtime outlives it.
  // `trace` is cut to requests the model's context holds; nothing left is a Failure.
  Replay(const Runtime& runtime, const ReplayOptions& options, Trace trace);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  bool done() const { return scheduler_->done(); }
  // Waits on the virtual clock for the next arrival if it must, then plans, runs, checks and commits one step.
  void step();
  // What is known so far.
  RunReport report() const;
  uint64_t steps() const { return report_.step_ms.size(); }
  size_t num_running() const { return scheduler_->num_running(); }
  double progress() const { return static_cast<double>(computed_tokens_) / static_cast<double>(total_tokens_); }

 private:
  void resolve_device(const Runtime& runtime);
  void make_layers();
  void make_pool();
  uint64_t default_budget_bytes() const;
  void poison_cache();
  double run_layers(uint64_t step);
  // Whether it was one replay of all layers.
  bool run_kind(LayerKind& kind, uint64_t step);
  template <class Body>
  void draw(Body&& body);
  double outside_s() const { return timer_->seconds(Spent::kMetadata) + timer_->seconds(Spent::kWaits); }
  void verify(LayerKind& kind, const std::vector<ChosenRow>& chosen, uint32_t layer);
  void count_rows(const std::vector<StepRow>& rows);

  ReplayOptions options_;
  Trace trace_;
  DeviceStream stream_;  // before whatever is queued on it
  Place place_;
  std::unique_ptr<AttentionTimer> timer_;
  std::string device_name_;
  ModelKinds model_;
  uint32_t max_seq_len_ = 0;
  std::vector<std::unique_ptr<LayerKind>> kinds_;
  std::unique_ptr<anyattn_kv_pool, void (*)(anyattn_kv_pool*)> pool_{nullptr, anyattn_kv_pool_destroy};
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<StepBatch> batch_;
  RowChooser chooser_;
  RunReport report_;
  double clock_s_ = 0;
  uint64_t computed_tokens_ = 0;
  uint64_t total_tokens_ = 0;
};

}  // namespace anyattn::tools
