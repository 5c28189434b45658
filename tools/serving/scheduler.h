// SPDX-License-Identifier: Apache-2.0
// Continuous batching: which tokens of which requests make up the next step. Included by run and its tests.
// Decides by the virtual clock it is given and by what the KV pool says; runs no layer and reads no real clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "anyattn/kv_pool.h"
#include "serving/content.h"
#include "serving/trace.h"

namespace anyattn::tools {

struct ServedRequest {
  Content content;
  uint64_t id = 0;
  uint32_t generated = 0;  // output tokens there are; all but the newest were also fed back
  uint32_t computed = 0;   // tokens whose keys are in the cache
  uint32_t cached = 0;     // of these found by prefix when it was (last) taken in

  const TraceRequest& trace() const { return *content.trace; }
  uint32_t known() const { return trace().prompt_tokens + generated; }  // tokens to compute, as far as they exist
};

// Tokens [start, start + count) of one request.
struct StepRow {
  ServedRequest* request = nullptr;
  uint32_t start = 0;
  uint32_t count = 0;
  // One generated token fed back; everything else, recomputing after a preemption included, is prefill.
  bool is_decode() const { return count == 1 && start >= request->trace().prompt_tokens && start + 1 == request->known(); }
};

struct SchedulerOptions {
  uint32_t token_budget = 2048;
  uint32_t max_num_reqs = 64;
  bool saturate = false;  // everybody is there at time 0
  uint64_t seed = 0;
};

class Scheduler {
 public:
  // Trace and pool outlive the scheduler; the pool is its alone.
  Scheduler(const Trace& trace, const SchedulerOptions& options, anyattn_kv_pool* pool);

  bool done() const { return next_arrival_ == trace_.requests.size() && waiting_.empty() && running_.empty(); }
  // When nothing runs or waits: the stamp of the next request.
  bool idle() const { return waiting_.empty() && running_.empty(); }
  double next_arrival_s() const { return arrival_s(next_arrival_); }

  // Rows of the next step, room for all of them reserved; valid until finish(). Running requests in the order they were taken
  // in, then new ones while budget, rows and blocks allow. Out of blocks: the request taken in last gives its own back and
  // waits to be computed anew. Empty only where a request has just given way to itself. Throws Failure where a request does
  // not fit into the whole pool.
  const std::vector<StepRow>& plan(double clock_s);
  // The planned step has run: commits it, and adds the output token of each request that was computed to its end.
  void finish();

  uint64_t requests_done() const { return requests_done_; }
  uint64_t preemptions() const { return preemptions_; }
  size_t num_running() const { return running_.size(); }

 private:
  double arrival_s(size_t index) const { return options_.saturate ? 0 : trace_.requests[index].arrival_s; }
  void admit_arrivals(double clock_s);
  bool reserve(ServedRequest& request, uint32_t total_tokens, bool alone);
  void schedule_running();
  void schedule_waiting();
  bool make_room(size_t position, uint32_t total_tokens);
  bool take_in(ServedRequest& request);
  void preempt_last();

  const Trace& trace_;
  SchedulerOptions options_;
  anyattn_kv_pool* pool_;
  size_t next_arrival_ = 0;
  std::deque<std::unique_ptr<ServedRequest>> waiting_;
  std::vector<std::unique_ptr<ServedRequest>> running_;
  std::vector<StepRow> rows_;
  std::vector<int32_t> token_ids_;
  uint32_t budget_ = 0;
  bool preempted_ = false;  // in this step
  uint64_t requests_done_ = 0;
  uint64_t preemptions_ = 0;
};

}  // namespace anyattn::tools
