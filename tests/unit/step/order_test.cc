// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "anyattn/backend.h"
#include "anyattn/step.h"

namespace {

struct OrderCase {
  const char* claim;
  std::vector<int32_t> lens;
  uint32_t threshold;
  uint32_t query_lengths;
  std::vector<uint32_t> order;
  uint32_t num_decode_reqs, num_decode_tokens;
};

struct Ordered {
  std::vector<uint32_t> order;
  anyattn_step_split split{};
  int32_t status = 0;
  std::string text;
};

Ordered order_of(const std::vector<int32_t>& lens, uint32_t threshold, uint32_t query_lengths) {
  Ordered result;
  char text[256] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  result.order.assign(lens.size(), 99);
  result.split.struct_size = ANYATTN_STEP_SPLIT_SIZE;
  result.status = anyattn_step_order(lens.data(), static_cast<uint32_t>(lens.size()), threshold, query_lengths,
                                     result.order.data(), &result.split, &error);
  result.text = text;
  return result;
}

TEST_CASE("order_puts_decodes_first_and_keeps_both_parts_stable") {
  const OrderCase cases[] = {
      {"mixed", {7, 1, 5, 1, 1}, 1, ANYATTN_QUERY_ANY, {1, 3, 4, 0, 2}, 3, 3},
      {"all decode", {1, 1}, 1, ANYATTN_QUERY_ANY, {0, 1}, 2, 2},
      {"all prefill", {9, 8}, 1, ANYATTN_QUERY_ANY, {0, 1}, 0, 0},
      {"threshold of speculation", {4, 9, 2, 3, 5}, 4, ANYATTN_QUERY_ANY, {0, 2, 3, 1, 4}, 3, 9},
      {"padding is decode", {1, 6, 0, 0}, 1, ANYATTN_QUERY_ANY, {0, 2, 3, 1}, 3, 1},
      {"single takes one row only", {2, 1, 3}, 4, ANYATTN_QUERY_SINGLE, {1, 0, 2}, 1, 1},
      {"uniform follows the first decode", {3, 2, 3, 0, 1}, 4, ANYATTN_QUERY_UNIFORM, {0, 2, 3, 1, 4}, 3, 6},
      {"padding first sets no uniform length", {0, 2, 2, 1}, 2, ANYATTN_QUERY_UNIFORM, {0, 1, 2, 3}, 3, 4},
      {"empty batch", {}, 1, ANYATTN_QUERY_ANY, {}, 0, 0},
  };
  for (const OrderCase& c : cases) {
    CAPTURE(c.claim);
    const Ordered got = order_of(c.lens, c.threshold, c.query_lengths);
    int64_t tokens = 0;
    for (const int32_t len : c.lens) tokens += len;
    REQUIRE(got.status == ANYATTN_OK);
    CHECK(got.order == c.order);
    CHECK(got.split.num_decode_reqs == c.num_decode_reqs);
    CHECK(got.split.num_prefill_reqs == c.lens.size() - c.num_decode_reqs);
    CHECK(got.split.num_decode_tokens == c.num_decode_tokens);
    CHECK(got.split.num_prefill_tokens == tokens - c.num_decode_tokens);
  }
}

TEST_CASE("order_refuses_negative_lengths_and_unknown_query_lengths") {
  CHECK(order_of({1, -3}, 1, ANYATTN_QUERY_ANY).text ==
        "step: order: row 1 has query length -3; allowed: 0 or more, below 2^31 in all");
  CHECK(order_of({INT32_MAX, 1}, 1, ANYATTN_QUERY_ANY).status == ANYATTN_INVALID_ARGUMENT);
  CHECK(order_of({1}, 1, 0).status == ANYATTN_INVALID_ARGUMENT);
  CHECK(order_of({1}, 1, 4).status == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_order(nullptr, 1, 1, ANYATTN_QUERY_ANY, nullptr, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
}

TEST_CASE("decode_threshold_is_the_smallest_opinion") {
  const uint32_t some[] = {4, 0, 2, 8};
  const uint32_t none[] = {0, 0};
  CHECK(anyattn_step_decode_threshold(some, 4) == 2);
  CHECK(anyattn_step_decode_threshold(none, 2) == 1);
  CHECK(anyattn_step_decode_threshold(nullptr, 0) == 1);
}

TEST_CASE("graph_level_is_the_minimum_and_names_who_lowered_it") {
  struct LevelCase {
    std::vector<uint32_t> levels;
    uint32_t level, lowered_by;
  };
  const LevelCase cases[] = {
      {{ANYATTN_GRAPH_ALWAYS, ANYATTN_GRAPH_ALWAYS}, ANYATTN_GRAPH_ALWAYS, 2},
      {{ANYATTN_GRAPH_ALWAYS, ANYATTN_GRAPH_UNIFORM_BATCH, ANYATTN_GRAPH_UNIFORM_BATCH}, ANYATTN_GRAPH_UNIFORM_BATCH, 1},
      {{ANYATTN_GRAPH_UNIFORM_BATCH, ANYATTN_GRAPH_NEVER, ANYATTN_GRAPH_ALWAYS}, ANYATTN_GRAPH_NEVER, 1},
      {{25, ANYATTN_GRAPH_ALWAYS}, ANYATTN_GRAPH_UNIFORM_BATCH, 0},  // unknown: the next lower known one
      {{5}, ANYATTN_GRAPH_NEVER, 0},
      {{999}, ANYATTN_GRAPH_ALWAYS, 1},
      {{}, ANYATTN_GRAPH_NEVER, 0},
  };
  for (const LevelCase& c : cases) {
    CAPTURE(c.levels.size());
    uint32_t by = 77;
    CHECK(anyattn_step_graph_level(c.levels.data(), static_cast<uint32_t>(c.levels.size()), &by) == c.level);
    CHECK(by == c.lowered_by);
  }
}

TEST_CASE("nulls_read_as_nothing_where_no_status_can_say_so") {
  uint32_t by = 7;
  CHECK(anyattn_step_decode_threshold(nullptr, 3) == 1);
  CHECK(anyattn_step_graph_level(nullptr, 3, &by) == ANYATTN_GRAPH_NEVER);
  CHECK(by == 0);
  CHECK(anyattn_step_context_num_chunks(nullptr, 3, 16) == 0);
  CHECK(anyattn_step_context_workspace(nullptr, 16) == 0);
  anyattn_step_rebase(nullptr, 0, 3, nullptr);
  CHECK(anyattn_step_expand_blocks(nullptr, 1, 32, 16, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
}

// Four requests, ordered: two decodes with contexts 10 and 20, prefills of 3 and 5 rows.
struct OrderedBatch {
  std::vector<int32_t> query_start_loc{0, 1, 2, 5, 10};
  std::vector<int32_t> seq_lens{10, 20, 30, 5};
  std::vector<int32_t> table = std::vector<int32_t>(4 * 6);
  std::vector<uint8_t> causal{1, 1, 0, 1};
  std::vector<int32_t> prefill_loc = std::vector<int32_t>(3);
  anyattn_batch batch{};
  anyattn_step_split split{ANYATTN_STEP_SPLIT_SIZE, 2, 2, 2, 8};

  OrderedBatch() {
    batch.struct_size = ANYATTN_BATCH_SIZE;
    batch.num_reqs = 4;
    batch.num_tokens = 10;
    batch.max_query_len = 64;  // upper bounds on purpose
    batch.max_seq_len = 128;
    batch.shared_prefix_len = 4;
    batch.query_start_loc = batch.query_start_loc_host = query_start_loc.data();
    batch.seq_lens = batch.seq_lens_host = seq_lens.data();
    batch.block_table = table.data();
    batch.block_table_stride = 6;
    batch.causal = causal.data();
    anyattn_step_rebase(query_start_loc.data(), 2, 2, prefill_loc.data());
  }
  anyattn_batch slice(uint32_t part) {
    anyattn_batch out{};
    out.struct_size = ANYATTN_BATCH_SIZE;
    REQUIRE(anyattn_step_slice(&batch, &split, part, prefill_loc.data(), prefill_loc.data(), &out, nullptr) == ANYATTN_OK);
    return out;
  }
};

TEST_CASE("slice_gives_the_decode_part_with_its_own_maxima") {
  OrderedBatch b;
  const anyattn_batch decode = b.slice(ANYATTN_PHASE_DECODE);
  CHECK(decode.num_reqs == 2);
  CHECK(decode.num_tokens == 2);
  CHECK(decode.max_query_len == 1);
  CHECK(decode.max_seq_len == 20);
  CHECK(decode.query_start_loc == b.query_start_loc.data());
  CHECK(decode.block_table == b.table.data());
}

TEST_CASE("slice_gives_the_prefill_part_with_offsets_from_zero") {
  OrderedBatch b;
  const anyattn_batch prefill = b.slice(ANYATTN_PHASE_PREFILL);
  CHECK(b.prefill_loc == std::vector<int32_t>{0, 3, 8});
  CHECK(prefill.num_reqs == 2);
  CHECK(prefill.num_tokens == 8);
  CHECK(prefill.max_query_len == 5);
  CHECK(prefill.max_seq_len == 30);
  CHECK(prefill.shared_prefix_len == 4);
  CHECK(prefill.query_start_loc == b.prefill_loc.data());
  CHECK(prefill.seq_lens == b.seq_lens.data() + 2);
  CHECK(prefill.seq_lens_host == b.seq_lens.data() + 2);
  CHECK(prefill.block_table == b.table.data() + 12);
  CHECK(prefill.causal == b.causal.data() + 2);
}

TEST_CASE("slice_keeps_upper_bounds_where_no_host_copy_is_there") {
  OrderedBatch b;
  b.batch.query_start_loc_host = b.batch.seq_lens_host = nullptr;
  const anyattn_batch prefill = b.slice(ANYATTN_PHASE_PREFILL);
  CHECK(prefill.max_query_len == 64);
  CHECK(prefill.max_seq_len == 128);
}

TEST_CASE("slice_of_both_copies_the_batch") {
  OrderedBatch b;
  const anyattn_batch both = b.slice(ANYATTN_PHASE_BOTH);
  CHECK(both.num_reqs == 4);
  CHECK(both.max_query_len == 64);
  CHECK(both.query_start_loc == b.query_start_loc.data());
}

TEST_CASE("slice_writes_no_more_than_the_caller_has") {
  OrderedBatch b;
  anyattn_batch out{};
  out.struct_size = ANYATTN_END_OFFSET(anyattn_batch, num_reqs);
  REQUIRE(anyattn_step_slice(&b.batch, &b.split, ANYATTN_PHASE_DECODE, nullptr, nullptr, &out, nullptr) == ANYATTN_OK);
  CHECK(out.num_reqs == 2);
  CHECK(out.num_tokens == 0);
  CHECK(out.struct_size == ANYATTN_END_OFFSET(anyattn_batch, num_reqs));
}

TEST_CASE("slice_refuses_a_split_of_another_batch_and_missing_offsets") {
  OrderedBatch b;
  anyattn_batch out{};
  out.struct_size = ANYATTN_BATCH_SIZE;
  CHECK(anyattn_step_slice(&b.batch, &b.split, ANYATTN_PHASE_PREFILL, nullptr, nullptr, &out, nullptr) ==
        ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_slice(&b.batch, &b.split, 3, nullptr, nullptr, &out, nullptr) == ANYATTN_INVALID_ARGUMENT);
  b.split.num_prefill_reqs = 3;
  CHECK(anyattn_step_slice(&b.batch, &b.split, ANYATTN_PHASE_DECODE, nullptr, nullptr, &out, nullptr) ==
        ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_slice(nullptr, &b.split, ANYATTN_PHASE_DECODE, nullptr, nullptr, &out, nullptr) ==
        ANYATTN_INVALID_ARGUMENT);
}

}  // namespace
