// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "anyattn/step.h"

namespace {

struct Plan {
  uint32_t num_chunks = 0;
  std::vector<int32_t> row_start_loc, context_start;
  std::vector<uint32_t> rows, max_rows;
};

Plan plan_of(const std::vector<int32_t>& lens, uint32_t workspace) {
  const auto reqs = static_cast<uint32_t>(lens.size());
  const uint32_t chunks = anyattn_step_context_num_chunks(lens.data(), reqs, workspace);
  Plan plan;
  plan.row_start_loc.resize(chunks * (reqs + 1));
  plan.context_start.resize(chunks * reqs);
  plan.rows.resize(chunks);
  plan.max_rows.resize(chunks);
  REQUIRE(anyattn_step_context_plan(lens.data(), reqs, workspace, chunks, plan.row_start_loc.data(), plan.context_start.data(),
                                    plan.rows.data(), plan.max_rows.data(), &plan.num_chunks, nullptr) == ANYATTN_OK);
  return plan;
}

// Walks the plan and gives, per request, how many of its context tokens come in order and exactly once.
std::vector<int32_t> covered(const Plan& plan, size_t reqs) {
  std::vector<int32_t> next(reqs, 0);
  for (uint32_t c = 0; c < plan.num_chunks; ++c) {
    const int32_t* starts = plan.row_start_loc.data() + c * (reqs + 1);
    CHECK(starts[0] == 0);
    uint32_t most = 0;
    for (size_t r = 0; r < reqs; ++r) {
      const int32_t rows = starts[r + 1] - starts[r];
      CHECK(rows >= 0);
      most = std::max(most, static_cast<uint32_t>(rows));
      if (rows > 0) CHECK(plan.context_start[c * reqs + r] == next[r]);
      next[r] += rows;
    }
    CHECK(plan.max_rows[c] == most);
    CHECK(plan.rows[c] == static_cast<uint32_t>(starts[reqs]));
  }
  return next;
}

TEST_CASE("context_chunks_follow_the_total_not_the_longest") {
  std::vector<int32_t> one_long(32, 16);
  one_long[0] = 60000;
  std::vector<int32_t> eight(8, 1024);
  eight[0] = 65536;
  CHECK(plan_of(one_long, 65536).num_chunks == 1);
  CHECK(plan_of(eight, 65536).num_chunks == 2);
}

TEST_CASE("context_plan_of_unlike_prefixes_covers_each_once") {
  const std::vector<int32_t> lens{40, 8, 0};
  struct SizeCase {
    uint32_t workspace, chunks;
  };
  for (const SizeCase c : {SizeCase{8, 6}, SizeCase{16, 3}, SizeCase{24, 2}, SizeCase{64, 1}}) {
    CAPTURE(c.workspace);
    const Plan plan = plan_of(lens, c.workspace);
    CHECK(plan.num_chunks == c.chunks);
    CHECK(covered(plan, 3) == lens);
  }
}

TEST_CASE("context_plan_gives_used_up_requests_no_rows") {
  const Plan plan = plan_of({8, 40, 0}, 16);
  CHECK(plan.row_start_loc == std::vector<int32_t>{0, 8, 16, 16, 0, 0, 16, 16, 0, 0, 16, 16});
  CHECK(plan.context_start[1 * 3 + 1] == 8);
  CHECK(plan.context_start[2 * 3 + 1] == 24);
}

TEST_CASE("context_plan_of_random_batches_covers_each_once_in_full_chunks") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> lens(1 + random() % 20);
    for (int32_t& len : lens) len = static_cast<int32_t>(random() % 3 == 0 ? 0 : random() % 500);
    const uint32_t workspace = 1 + random() % 300;
    CAPTURE(round);
    const Plan plan = plan_of(lens, workspace);
    CHECK(covered(plan, lens.size()) == lens);
    for (uint32_t c = 0; c + 1 < plan.num_chunks; ++c) CHECK(plan.rows[c] == workspace);
  }
}

TEST_CASE("context_plan_refuses_what_it_cannot_do") {
  const int32_t lens[] = {10, 10};
  const int32_t negative[] = {10, -1};
  int32_t starts[6], positions[4];
  uint32_t rows[2], most[2], chunks;
  char text[256] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  CHECK(anyattn_step_context_plan(lens, 2, 5, 2, starts, positions, rows, most, &chunks, &error) == ANYATTN_OUT_OF_MEMORY);
  CHECK(std::string(text) == "step: context_plan needs 4 chunks of 5 rows, the arrays have room for 2");
  CHECK(anyattn_step_context_plan(lens, 2, 0, 2, starts, positions, rows, most, &chunks, &error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_context_plan(negative, 2, 10, 2, starts, positions, rows, most, &chunks, &error) ==
        ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(text) == "step: context_plan: request 1 has a context of -1 tokens");
}

TEST_CASE("context_workspace_follows_the_limits") {
  struct WorkspaceCase {
    uint32_t max_num_reqs, max_seq_len, block_size;
    uint64_t rows;
  };
  const WorkspaceCase cases[] = {
      {64, 2048, 16, 16384},      // eight longest requests
      {256, 100, 16, 16384},      // four blocks a request
      {64, 131072, 16, 65536},    // the cap
      {2048, 131072, 64, 131072}  // one block a request beats the cap
  };
  for (const WorkspaceCase& c : cases) {
    const anyattn_limits limits{ANYATTN_LIMITS_SIZE, c.max_num_reqs, 1, 1, c.max_seq_len, 1};
    CHECK(anyattn_step_context_workspace(&limits, c.block_size) == c.rows);
  }
}

}  // namespace
