// SPDX-License-Identifier: Apache-2.0
#include "cache/block_manager.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

namespace {

using anyattn::cache::BlockManager;
using anyattn::cache::GroupShape;
using anyattn::cache::PoolShape;

GroupShape group(uint32_t block_size, int32_t window_left = -1, uint32_t blocks_per_page = 1, uint32_t kernel_block_size = 0) {
  return {block_size, kernel_block_size ? kernel_block_size : block_size, blocks_per_page, window_left, "kind"};
}

std::vector<int32_t> tokens(int32_t first, uint32_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// The calls without their ceremony: each remembers its status and text.
struct Pool {
  BlockManager blocks;
  char text[512] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};

  Pool(uint32_t num_pages, std::vector<GroupShape> groups, bool sharing = true)
      : blocks(PoolShape{num_pages, 8, 4096, sharing, std::move(groups)}, {1, 2}) {}

  uint32_t begin(uint64_t id, const std::vector<int32_t>& ids, uint64_t salt = 0) {
    uint32_t cached = 0;
    REQUIRE(blocks.begin(id, ids, salt, &cached, &error) == ANYATTN_OK);
    return cached;
  }
  int32_t reserve(uint64_t id, uint32_t total) { return blocks.reserve(id, total, &error); }
  void compute(uint64_t id, uint32_t total) {
    REQUIRE(blocks.reserve(id, total, &error) == ANYATTN_OK);
    REQUIRE(blocks.commit(id, total, &error) == ANYATTN_OK);
  }
  void release(uint64_t id) { REQUIRE(blocks.release(id, &error) == ANYATTN_OK); }
  std::vector<int32_t> row(uint64_t id, uint32_t entries, uint32_t g = 0) {
    std::vector<int32_t> out(std::max<size_t>(entries, blocks.table_width(g)), -7);
    REQUIRE(blocks.block_table(g, std::vector<uint64_t>{id}, out.data(), static_cast<int64_t>(out.size()), &error) ==
            ANYATTN_OK);
    out.resize(entries);
    return out;
  }
};

TEST_CASE("pool_hands_out_runs_of_neighbouring_blocks") {
  Pool pool(16, {group(4)});
  pool.begin(1, tokens(0, 8));
  pool.begin(2, tokens(100, 8));
  pool.compute(1, 8);
  pool.compute(2, 8);
  CHECK(pool.row(1, 3) == std::vector<int32_t>{0, 1, -7});
  CHECK(pool.row(2, 2) == std::vector<int32_t>{2, 3});
  pool.compute(2, 16);
  CHECK(pool.row(2, 4) == std::vector<int32_t>{2, 3, 4, 5});
}

TEST_CASE("manager_blocks_are_split_into_kernel_blocks") {
  Pool pool(8, {group(48, -1, 1, 16)});
  pool.begin(9, tokens(0, 48));
  pool.compute(9, 48);
  pool.begin(1, tokens(500, 70));
  pool.compute(1, 70);
  CHECK(pool.row(1, 6) == std::vector<int32_t>{3, 4, 5, 6, 7, 8});
  int64_t slots[3];
  REQUIRE(pool.blocks.slot_mapping(0, 1, 47, 3, slots, &pool.error) == ANYATTN_OK);
  CHECK(slots[0] == 5 * 16 + 15);
  CHECK(slots[1] == 6 * 16);
  CHECK(slots[2] == 6 * 16 + 1);
}

TEST_CASE("prefix_is_reused_in_full_blocks_with_one_token_left") {
  struct ReuseCase {
    uint32_t computed, asked, cached;
  };
  // The first request holds `computed` tokens; the second has the same beginning and `asked` tokens.
  const ReuseCase cases[] = {{16, 17, 16}, {16, 16, 12}, {16, 100, 16}, {15, 100, 12},
                             {3, 100, 0},  {16, 5, 4},   {16, 4, 0},    {16, 1, 0}};
  for (const ReuseCase& c : cases) {
    CAPTURE(c.computed);
    CAPTURE(c.asked);
    Pool pool(64, {group(4)});
    pool.begin(1, tokens(0, 100));
    pool.compute(1, c.computed);
    CHECK(pool.begin(2, tokens(0, c.asked)) == c.cached);
    CHECK(pool.row(2, c.cached / 4) == pool.row(1, c.cached / 4));
    CHECK(pool.blocks.reused_tokens() == c.cached);
    CHECK(pool.blocks.begun_tokens() == 100 + c.asked);
  }
}

TEST_CASE("prefix_needs_the_same_tokens_from_the_start_and_the_same_salt") {
  Pool pool(64, {group(4)});
  pool.begin(1, tokens(0, 16));
  pool.compute(1, 16);
  std::vector<int32_t> other = tokens(0, 16);
  other[0] = 77;
  CHECK(pool.begin(2, other) == 0);
  CHECK(pool.begin(3, tokens(0, 16), 5) == 0);
  other = tokens(0, 16);
  other[9] = 77;
  CHECK(pool.begin(4, other) == 8);
}

TEST_CASE("prefix_survives_release_until_memory_is_needed_oldest_first") {
  Pool pool(6, {group(4)});
  pool.begin(1, tokens(0, 8));
  pool.compute(1, 8);
  pool.release(1);
  pool.begin(2, tokens(100, 8));
  pool.compute(2, 8);
  pool.release(2);
  CHECK(pool.blocks.pages().cached_blocks(0) == 4);
  pool.begin(3, tokens(200, 12));
  pool.compute(3, 12);  // two free blocks and the oldest cached one: the end of request 1's prefix
  CHECK(pool.blocks.pages().evicted_blocks() == 1);
  CHECK(pool.begin(4, tokens(0, 9)) == 4);
  CHECK(pool.begin(5, tokens(100, 9)) == 8);
}

TEST_CASE("generated_tokens_are_shared_once_named") {
  Pool pool(16, {group(4)});
  pool.begin(1, tokens(0, 6));
  pool.compute(1, 9);
  CHECK(pool.begin(2, tokens(0, 9)) == 4);  // tokens 6 to 8 were computed, but never named
  const std::vector<int32_t> more = tokens(6, 3);
  REQUIRE(pool.blocks.append(1, more, &pool.error) == ANYATTN_OK);
  pool.compute(1, 9);
  CHECK(pool.begin(3, tokens(0, 9)) == 8);
}

TEST_CASE("uncommitted_blocks_are_not_found") {
  Pool pool(16, {group(4)});
  pool.begin(1, tokens(0, 16));
  REQUIRE(pool.reserve(1, 16) == ANYATTN_OK);
  CHECK(pool.begin(2, tokens(0, 16)) == 0);
}

TEST_CASE("sharing_switched_off_finds_nothing") {
  Pool pool(16, {group(4)}, false);
  pool.begin(1, tokens(0, 16));
  pool.compute(1, 16);
  CHECK(pool.begin(2, tokens(0, 16)) == 0);
  pool.release(1);
  CHECK(pool.blocks.pages().idle_pages() == 0);
}

TEST_CASE("window_group_frees_blocks_behind_the_window") {
  Pool pool(64, {group(4, 7)});  // eight keys, the own one counted
  pool.begin(1, tokens(0, 100));
  struct WindowCase {
    uint32_t computed, first_live;
  };
  // The next token stands at `computed` and sees keys from computed - 7 on.
  for (const WindowCase c : {WindowCase{4, 0}, {7, 0}, {10, 0}, {11, 1}, {14, 1}, {15, 2}, {40, 8}}) {
    CAPTURE(c.computed);
    pool.compute(1, c.computed);
    const std::vector<int32_t> row = pool.row(1, (c.computed + 3) / 4);
    for (uint32_t i = 0; i < row.size(); ++i) CHECK((row[i] == -1) == (i < c.first_live));
  }
  CHECK(pool.blocks.pages().held_blocks(0) == 2);
  int64_t slot;
  CHECK(pool.blocks.slot_mapping(0, 1, 31, 1, &slot, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(pool.blocks.slot_mapping(0, 1, 32, 1, &slot, &pool.error) == ANYATTN_OK);
}

TEST_CASE("window_prefix_needs_only_the_blocks_in_the_window") {
  Pool pool(12, {group(4, 7)});
  pool.begin(1, tokens(0, 41));
  for (uint32_t computed = 4; computed <= 40; computed += 4) pool.compute(1, computed);
  pool.release(1);
  pool.begin(2, tokens(500, 16));
  REQUIRE(pool.reserve(2, 16) == ANYATTN_OK);  // evicts the two oldest: positions 0 to 7
  CHECK(pool.blocks.pages().evicted_blocks() == 2);
  CHECK(pool.begin(3, tokens(0, 41)) == 40);
  const std::vector<int32_t> row = pool.row(3, 10);
  CHECK(row[7] == -1);
  CHECK(row[8] >= 0);
  CHECK(row[9] >= 0);
}

TEST_CASE("groups_agree_on_a_prefix_at_a_common_boundary") {
  Pool pool(64, {group(4), group(12), group(8, 15)});
  pool.begin(1, tokens(0, 100));
  pool.compute(1, 60);  // full blocks: 60, 60 and 56 tokens
  CHECK(pool.begin(2, tokens(0, 100)) == 48);
  CHECK(pool.row(2, 12, 0) == pool.row(1, 12, 0));
  CHECK(pool.row(2, 4, 1) == pool.row(1, 4, 1));
}

TEST_CASE("reserve_is_all_or_nothing_over_groups_and_says_the_numbers") {
  Pool pool(6, {group(4), group(8)});
  pool.begin(1, tokens(0, 8));
  pool.compute(1, 8);  // two pages and one
  pool.begin(2, tokens(100, 20));
  CHECK(pool.reserve(2, 20) == ANYATTN_OUT_OF_MEMORY);
  CHECK(std::string(pool.text) ==
        "kv pool: 20 tokens of request 2 need 8 pages, the whole pool has 6; give it a larger budget");
  CHECK(pool.reserve(2, 16) == ANYATTN_MEMORY_NOT_NOW);
  CHECK(std::string(pool.text) ==
        "kv pool: 16 tokens of request 2 need 6 more blocks (6 pages), 3 of 6 pages can be had now; release a request or wait");
  CHECK(pool.row(2, 1, 0) == std::vector<int32_t>{-7});
  CHECK(pool.blocks.pages().held_blocks(0) == 2);
  pool.release(1);
  CHECK(pool.reserve(2, 16) == ANYATTN_OK);
}

TEST_CASE("groups_of_unlike_block_bytes_take_pages_from_each_other") {
  // A page is one block of the first group or four of the second.
  Pool pool(4, {group(4, -1, 1), group(4, -1, 4)});
  pool.begin(1, tokens(0, 12));
  REQUIRE(pool.reserve(1, 12) == ANYATTN_OK);  // three pages and one
  CHECK(pool.blocks.pages().active_pages() == 4);
  pool.begin(2, tokens(100, 4));
  CHECK(pool.reserve(2, 4) == ANYATTN_MEMORY_NOT_NOW);
  pool.release(1);
  CHECK(pool.reserve(2, 4) == ANYATTN_OK);
  CHECK(pool.blocks.pages().active_pages() == 2);
}

TEST_CASE("requests_share_pages_of_a_group_with_small_blocks") {
  Pool pool(3, {group(4, -1, 4)});
  for (uint64_t id = 1; id <= 6; ++id) {
    pool.begin(id, tokens(static_cast<int32_t>(100 * id), 8));
    REQUIRE(pool.reserve(id, 8) == ANYATTN_OK);
  }
  CHECK(pool.blocks.pages().active_pages() == 3);
  pool.begin(7, tokens(0, 1));
  CHECK(pool.reserve(7, 1) == ANYATTN_MEMORY_NOT_NOW);
  pool.release(3);
  CHECK(pool.reserve(7, 8) == ANYATTN_OK);
}

TEST_CASE("wrong_calls_are_told_apart") {
  Pool pool(8, {group(4)});
  uint32_t cached;
  CHECK(pool.blocks.begin(1, {}, 0, &cached, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(pool.blocks.begin(1, tokens(0, 5000), 0, &cached, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(pool.text) == "kv pool: begin of request 1 with 5000 tokens; allowed: 1 to max_seq_len 4096");
  pool.begin(1, tokens(0, 8));
  CHECK(pool.blocks.begin(1, tokens(0, 8), 0, &cached, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(pool.reserve(2, 8) == ANYATTN_NOT_FOUND);
  CHECK(pool.reserve(1, 4097) == ANYATTN_INVALID_ARGUMENT);
  CHECK(pool.blocks.commit(1, 1, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  pool.compute(1, 8);
  CHECK(pool.blocks.commit(1, 7, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(pool.text) ==
        "kv pool: commit of 7 tokens of request 1; allowed: from the 8 committed before to the 8 reserved");
  int64_t slots[16];
  CHECK(pool.blocks.slot_mapping(0, 1, 4, 5, slots, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(pool.blocks.slot_mapping(1, 1, 0, 1, slots, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  int32_t table[4];
  CHECK(pool.blocks.block_table(0, std::vector<uint64_t>{1}, table, 1, &pool.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(pool.blocks.append(1, tokens(0, 4089), &pool.error) == ANYATTN_INVALID_ARGUMENT);
  for (uint64_t id = 2; id <= 8; ++id) pool.begin(id, tokens(0, 1));
  CHECK(pool.blocks.begin(9, tokens(0, 1), 0, &cached, &pool.error) == ANYATTN_MEMORY_NOT_NOW);
  CHECK(pool.blocks.release(99, &pool.error) == ANYATTN_NOT_FOUND);
}

}  // namespace
