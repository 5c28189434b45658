// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <numeric>
#include <set>
#include <vector>

#include "anyattn/step.h"

namespace {

std::vector<int32_t> local_lens(int32_t length, uint32_t world, uint32_t interleave) {
  std::vector<int32_t> lens;
  for (uint32_t r = 0; r < world; ++r) lens.push_back(anyattn_step_cp_local_len(length, world, r, interleave));
  return lens;
}

TEST_CASE("cp_local_len_gives_the_known_shares") {
  struct ShareCase {
    uint32_t world, interleave;
    int32_t length;
    std::vector<int32_t> shares;
  };
  const ShareCase cases[] = {
      {4, 1, 3, {1, 1, 1, 0}},  {4, 1, 10, {3, 3, 2, 2}}, {4, 2, 3, {2, 1, 0, 0}},
      {4, 2, 10, {4, 2, 2, 2}}, {4, 2, 17, {5, 4, 4, 4}}, {2, 16, 17, {16, 1}},
      {2, 16, 33, {17, 16}},    {3, 4, 10, {4, 4, 2}},    {3, 4, 33, {12, 12, 9}},
  };
  for (const ShareCase& c : cases) {
    CAPTURE(c.world);
    CAPTURE(c.interleave);
    CAPTURE(c.length);
    CHECK(local_lens(c.length, c.world, c.interleave) == c.shares);
  }
}

TEST_CASE("cp_shares_sum_to_the_length_and_positions_are_dealt_once") {
  const uint32_t sizes[][2] = {{4, 1}, {4, 2}, {2, 16}, {3, 4}, {1, 1}};
  for (const auto& [world, interleave] : sizes) {
    for (const int32_t length : {0, 1, 3, 10, 17, 33, 1000}) {
      CAPTURE(world);
      CAPTURE(interleave);
      CAPTURE(length);
      const std::vector<int32_t> shares = local_lens(length, world, interleave);
      CHECK(std::accumulate(shares.begin(), shares.end(), 0) == length);
      std::set<int64_t> positions;
      for (uint32_t r = 0; r < world; ++r) {
        for (int32_t l = 0; l < shares[r]; ++l) positions.insert(anyattn_step_cp_position(l, world, r, interleave));
      }
      CHECK(positions.size() == static_cast<size_t>(length));
      CHECK((positions.empty() || *positions.rbegin() == length - 1));
    }
  }
}

TEST_CASE("cp_slots_follow_local_order_and_skip_other_ranks") {
  const uint32_t sizes[][3] = {{4, 1, 4}, {4, 2, 4}, {2, 16, 16}, {3, 4, 8}};
  for (const auto& [world, interleave, block_size] : sizes) {
    CAPTURE(world);
    CAPTURE(interleave);
    const std::vector<int32_t> row{7, 2, 5, 0};
    const uint32_t count = world * block_size * 4;
    for (uint32_t rank = 0; rank < world; ++rank) {
      std::vector<int64_t> slots(count);
      REQUIRE(anyattn_step_cp_slot_mapping(row.data(), 4, block_size, world, rank, interleave, 0, count, slots.data(),
                                           nullptr) == ANYATTN_OK);
      int64_t local = 0;
      for (uint32_t position = 0; position < count; ++position) {
        if (slots[position] < 0) continue;
        CHECK(anyattn_step_cp_position(local, world, rank, interleave) == position);
        CHECK(slots[position] == int64_t{row[static_cast<size_t>(local / block_size)]} * block_size + local % block_size);
        ++local;
      }
      CHECK(local == anyattn_step_cp_local_len(static_cast<int32_t>(count), world, rank, interleave));
    }
  }
}

TEST_CASE("cp_slots_refuse_what_the_row_does_not_hold") {
  const int32_t row[] = {3};
  int64_t slots[8];
  CHECK(anyattn_step_cp_slot_mapping(row, 1, 4, 2, 0, 1, 4, 5, slots, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_cp_slot_mapping(row, 1, 4, 2, 2, 1, 0, 1, slots, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_cp_slot_mapping(row, 1, 4, 2, 0, 3, 0, 1, slots, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_cp_slot_mapping(row, 1, 4, 2, 0, 1, -1, 1, slots, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_cp_slot_mapping(row, 1, 4, 2, 0, 1, 4, 4, slots, nullptr) == ANYATTN_OK);
}

TEST_CASE("cp_arithmetic_of_nonsense_is_zero_and_never_divides_by_it") {
  CHECK(anyattn_step_cp_local_len(10, 0, 0, 1) == 0);
  CHECK(anyattn_step_cp_local_len(10, 2, 2, 1) == 0);
  CHECK(anyattn_step_cp_local_len(10, 2, 0, 0) == 0);
  CHECK(anyattn_step_cp_local_len(-5, 2, 0, 1) == 0);
  CHECK(anyattn_step_cp_local_len(INT32_MAX, UINT32_MAX, 0, UINT32_MAX) == 0);
  CHECK(anyattn_step_cp_local_len(INT32_MAX, INT32_MAX, 0, INT32_MAX) == INT32_MAX);
  CHECK(anyattn_step_cp_position(3, 0, 0, 0) == 0);
  CHECK(anyattn_step_cp_head_tail_rows(100, 0, 0, nullptr) == 0);
  CHECK(anyattn_step_cp_head_tail_rows(100, UINT32_MAX, 7, nullptr) == 2);
}

TEST_CASE("head_tail_rows_give_each_rank_an_early_and_a_late_chunk") {
  int32_t rows[8];
  REQUIRE(anyattn_step_cp_head_tail_rows(16, 2, 0, nullptr) == 8);
  anyattn_step_cp_head_tail_rows(16, 2, 0, rows);
  CHECK(std::vector<int32_t>(rows, rows + 8) == std::vector<int32_t>{0, 1, 2, 3, 12, 13, 14, 15});
  anyattn_step_cp_head_tail_rows(16, 2, 1, rows);
  CHECK(std::vector<int32_t>(rows, rows + 8) == std::vector<int32_t>{4, 5, 6, 7, 8, 9, 10, 11});
}

TEST_CASE("head_tail_rows_of_odd_lengths_pad_and_cover_every_row_once") {
  for (const uint32_t length : {0u, 1u, 3u, 13u, 14u, 15u, 16u, 101u}) {
    for (const uint32_t world : {1u, 2u, 3u}) {
      CAPTURE(length);
      CAPTURE(world);
      std::set<int32_t> seen;
      for (uint32_t rank = 0; rank < world; ++rank) {
        std::vector<int32_t> rows(anyattn_step_cp_head_tail_rows(length, world, rank, nullptr));
        anyattn_step_cp_head_tail_rows(length, world, rank, rows.data());
        for (const int32_t row : rows) {
          if (row >= 0) CHECK(seen.insert(row).second);
        }
      }
      CHECK(seen.size() == length);
    }
  }
}

}  // namespace
