// SPDX-License-Identifier: Apache-2.0
// The scheduler over a real KV pool without any layer: what a step is made of, and that every token is computed once and in order.
#include "serving/scheduler.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "anyattn/runtime.hpp"
#include "common/failure.h"

namespace {

using namespace anyattn::tools;

// Blocks of 4 tokens, one layer, for `num_blocks` of them.
class Pool {
 public:
  explicit Pool(uint64_t num_blocks, uint32_t max_num_reqs = 8, int32_t window_left = -1) {
    plane_ = {ANYATTN_PLANE_SIZE, ANYATTN_PLANE_K, ANYATTN_DTYPE_FLOAT32, 4, {0, 4, 1, 16, 0}, {256, 64, 64, 4, 0}, 0};
    spec_ = {ANYATTN_KV_CACHE_SPEC_SIZE, 4, 256, 64, 1, sizeof(anyattn_plane), 0, &plane_, "one", 0};
    const anyattn_kv_group_options group{ANYATTN_KV_GROUP_OPTIONS_SIZE, 1, 0, window_left, &spec_, "full"};
    const anyattn_kv_pool_options options{
        ANYATTN_KV_POOL_OPTIONS_SIZE, 1, sizeof(group), ANYATTN_DEVICE_CPU, 0, max_num_reqs, 4096, 0, &group, 0, num_blocks};
    anyattn::check(anyattn_kv_pool_create, runtime_.get(), &options, &pool_);
  }
  ~Pool() { anyattn_kv_pool_destroy(pool_); }
  anyattn_kv_pool* get() const { return pool_; }
  anyattn_kv_pool_stats stats() const {
    anyattn_kv_pool_stats stats{};
    stats.struct_size = ANYATTN_KV_POOL_STATS_SIZE;
    anyattn::check(anyattn_kv_pool_get_stats, pool_, &stats);
    return stats;
  }

 private:
  static anyattn::Runtime::Options options() {
    return {std::string(ANYATTN_SOURCE_DIR) + "/tests/unit/cache/no_plugins.yaml", "", "error", 1};
  }
  anyattn_plane plane_{};
  anyattn_kv_cache_spec spec_{};
  anyattn::Runtime runtime_{options()};
  anyattn_kv_pool* pool_ = nullptr;
};

struct Planned {
  uint64_t request;
  uint32_t start, count;
  friend bool operator==(const Planned&, const Planned&) = default;
};

std::vector<Planned> step(Scheduler& scheduler, double clock_s) {
  std::vector<Planned> rows;
  for (const StepRow& row : scheduler.plan(clock_s)) rows.push_back({row.request->id, row.start, row.count});
  scheduler.finish();
  return rows;
}

using Rows = std::vector<Planned>;

TEST_CASE("scheduler_chunks_prefill_under_the_budget_and_decodes_beside_it") {
  Pool pool(64);
  const Trace trace{"t", {{0, 5, 3, {}}, {0, 12, 1, {}}}};
  Scheduler scheduler(trace, {.token_budget = 8, .max_num_reqs = 4, .saturate = false, .seed = 0}, pool.get());
  CHECK(step(scheduler, 0) == Rows{{0, 0, 5}, {1, 0, 3}});
  CHECK(step(scheduler, 0) == Rows{{0, 5, 1}, {1, 3, 7}});
  CHECK(step(scheduler, 0) == Rows{{0, 6, 1}, {1, 10, 2}});
  CHECK(scheduler.requests_done() == 2);
  CHECK(scheduler.done());
  CHECK(pool.stats().used_pages == 0);
}

TEST_CASE("scheduler_admits_by_stamp_and_saturate_admits_all") {
  const Trace trace{"t", {{0, 4, 2, {}}, {10, 4, 2, {}}}};
  for (const bool saturate : {false, true}) {
    CAPTURE(saturate);
    Pool pool(64);
    Scheduler scheduler(trace, {.token_budget = 64, .max_num_reqs = 4, .saturate = saturate, .seed = 0}, pool.get());
    CHECK(step(scheduler, 0).size() == (saturate ? 2 : 1));
    step(scheduler, 1);
    CHECK(scheduler.requests_done() == (saturate ? 2 : 1));
    if (saturate) continue;
    CHECK(scheduler.idle());
    CHECK(!scheduler.done());
    CHECK(scheduler.next_arrival_s() == 10);
    CHECK(step(scheduler, 9.9).empty());
    CHECK(step(scheduler, 10) == Rows{{1, 0, 4}});
  }
}

TEST_CASE("scheduler_holds_no_more_requests_than_allowed") {
  Pool pool(64, 2);
  const Trace trace{"t", {{0, 4, 2, {}}, {0, 4, 2, {}}, {0, 4, 2, {}}}};
  Scheduler scheduler(trace, {.token_budget = 64, .max_num_reqs = 2, .saturate = false, .seed = 0}, pool.get());
  CHECK(step(scheduler, 0).size() == 2);
  CHECK(step(scheduler, 0) == Rows{{0, 4, 1}, {1, 4, 1}});
  CHECK(step(scheduler, 0) == Rows{{2, 0, 4}});
}

TEST_CASE("scheduler_skips_what_a_shared_prefix_already_holds") {
  Pool pool(512);
  const Trace trace{"t", {{0, 600, 1, {1, 2}}, {1, 1100, 1, {1, 3, 4}}}};
  Scheduler scheduler(trace, {.token_budget = 4096, .max_num_reqs = 4, .saturate = false, .seed = 0}, pool.get());
  CHECK(step(scheduler, 0) == Rows{{0, 0, 600}});
  CHECK(step(scheduler, 1) == Rows{{1, 512, 588}});
  CHECK(pool.stats().reused_tokens == 512);
}

TEST_CASE("scheduler_preempts_the_youngest_and_recomputes_it_from_what_is_left") {
  Pool pool(8);  // 32 tokens
  const Trace trace{"t", {{0, 15, 12, {}}, {0, 15, 12, {}}}};
  Scheduler scheduler(trace, {.token_budget = 64, .max_num_reqs = 4, .saturate = false, .seed = 0}, pool.get());
  CHECK(step(scheduler, 0) == Rows{{0, 0, 15}, {1, 0, 15}});
  step(scheduler, 0);  // both fill their fourth block
  CHECK(scheduler.preemptions() == 0);
  CHECK(step(scheduler, 0) == Rows{{0, 16, 1}});  // a fifth block for the first: the second gives way
  CHECK(scheduler.preemptions() == 1);
  Rows rows;
  bool recomputed = false;
  for (int i = 0; i < 40 && !scheduler.done(); ++i) {
    for (const Planned& row : step(scheduler, 0)) recomputed = recomputed || (row.request == 1 && row.count > 1);
  }
  CHECK(recomputed);
  CHECK(scheduler.requests_done() == 2);
}

TEST_CASE("scheduler_fails_with_the_numbers_where_a_request_never_fits") {
  Pool pool(4);
  const Trace trace{"small.csv", {{0, 14, 12, {}}}};
  Scheduler scheduler(trace, {.token_budget = 64, .max_num_reqs = 4, .saturate = false, .seed = 0}, pool.get());
  std::string text;
  try {
    for (int i = 0; i < 40 && !scheduler.done(); ++i) step(scheduler, 0);
  } catch (const Failure& failure) {
    text = failure.what();
    CHECK(failure.code() == kExitFailed);
  }
  CHECK(
      text ==
      "request 1 of small.csv (14 prompt and 12 output tokens): 17 tokens are too many for the whole KV pool of 4 pages; raise "
      "--blocks, or leave it out by --max-prompt");
}

// Every request's tokens are computed in order from where its prefix ends, none beyond its last, whatever the pressure.
TEST_CASE("scheduler_serves_random_traces_under_any_pressure") {
  std::mt19937 random(11);
  uint64_t preemptions = 0, reused = 0;
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    Trace trace{"t", {}};
    for (int i = 0; i < 25; ++i) {
      TraceRequest request{i * 0.5, 1 + static_cast<uint32_t>(random() % 1200), 1 + static_cast<uint32_t>(random() % 30), {}};
      if (random() % 2) {
        for (uint32_t b = 0; b * kContentBlockTokens < request.prompt_tokens; ++b)
          request.content_blocks.push_back(b + random() % 2 * 100);
      }
      trace.requests.push_back(request);
    }
    Pool pool(320 + random() % 400, 8, round % 3 == 0 ? 50 : -1);
    const uint32_t budget = 8 + static_cast<uint32_t>(random() % 600);
    Scheduler scheduler(trace, {.token_budget = budget, .max_num_reqs = 8, .saturate = round % 2 == 0, .seed = 1}, pool.get());
    std::map<uint64_t, uint32_t> next;  // token of the request that comes next; absent: not begun, or begun anew
    double clock = 0;
    int steps = 0;
    while (!scheduler.done() && ++steps < 20000) {
      if (scheduler.idle()) clock = std::max(clock, scheduler.next_arrival_s());
      uint32_t tokens = 0;
      for (const StepRow& row : scheduler.plan(clock)) {
        const bool begins = row.start == row.request->cached && row.request->computed == row.start;
        if (!begins) REQUIRE(row.start == next[row.request->id]);
        REQUIRE(row.count > 0);
        REQUIRE(row.start + row.count <= row.request->known());
        REQUIRE(row.request->known() < row.request->trace().prompt_tokens + row.request->trace().output_tokens);
        next[row.request->id] = row.start + row.count;
        tokens += row.count;
      }
      REQUIRE(tokens <= budget);
      scheduler.finish();
      clock += 0.1;
    }
    CHECK(scheduler.requests_done() == 25);
    CHECK(pool.stats().used_pages == 0);
    preemptions += scheduler.preemptions();
    reused += pool.stats().reused_tokens;
  }
  CHECK(preemptions > 0);
  CHECK(reused > 0);
}

}  // namespace
