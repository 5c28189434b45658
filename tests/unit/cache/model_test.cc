// SPDX-License-Identifier: Apache-2.0
// The block manager against a model of the memory itself: every value written is remembered by its physical place, and every
// request must always find its own values there. Random calls, several groups of unlike blocks, windows, a pool that is too
// small.
#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "cache/block_manager.h"

namespace {

using anyattn::cache::BlockManager;
using anyattn::cache::ContentHash;
using anyattn::cache::extend;
using anyattn::cache::GroupShape;
using anyattn::cache::PoolShape;

struct HeldRequest {
  uint64_t salt = 0;
  std::vector<int32_t> tokens;    // known ids
  std::vector<uint64_t> content;  // [computed tokens] what token p's place must hold: a digest of all tokens up to p
  uint32_t reserved = 0;
};

// One place of the memory: who wrote it last.
struct Cell {
  uint32_t group = UINT32_MAX;
  uint64_t content = 0;
};

class World {
 public:
  World(PoolShape shape, uint32_t seed) : shape_(shape), blocks_(shape, {11, 22}), random_(seed) {
    for (const GroupShape& g : shape.groups) units_ = std::lcm(units_, g.blocks_per_page * g.block_size);
    cells_.resize(size_t{shape.num_pages} * units_);
  }

  void step() {
    const uint32_t action = random_() % 10;
    if (held_.empty() || (action < 3 && held_.size() < shape_.max_num_reqs)) return begin();
    auto it = held_.begin();
    std::advance(it, random_() % held_.size());
    if (action < 8) return grow(it->first, it->second);
    if (action == 8) return append(it->first, it->second);
    REQUIRE(blocks_.release(it->first, nullptr) == ANYATTN_OK);
    held_.erase(it);
  }

  void check() {
    std::vector<std::map<int32_t, uint32_t>> owners(shape_.groups.size());  // manager block -> holders
    for (const auto& [id, request] : held_) {
      for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
        for (const int32_t block : manager_row(g, id)) {
          if (block >= 0) ++owners[g][block];
        }
        check_values(g, id, request);
      }
    }
    std::set<int32_t> pages;
    size_t pages_of_groups = 0;
    for (uint32_t g = 0; g < owners.size(); ++g) {
      std::set<int32_t> own_pages;
      for (const auto& [block, holders] : owners[g]) {
        REQUIRE(blocks_.pages().references(g, static_cast<uint32_t>(block)) == holders);
        own_pages.insert(block / static_cast<int32_t>(shape_.groups[g].blocks_per_page));
      }
      REQUIRE(blocks_.pages().held_blocks(g) == owners[g].size());
      pages.insert(own_pages.begin(), own_pages.end());
      pages_of_groups += own_pages.size();
    }
    REQUIRE(pages.size() == pages_of_groups);  // no page of two groups
    REQUIRE(blocks_.pages().active_pages() == pages.size());
  }

  void release_all() {
    for (const auto& [id, request] : held_) REQUIRE(blocks_.release(id, nullptr) == ANYATTN_OK);
    held_.clear();
    REQUIRE(blocks_.pages().active_pages() == 0);
    for (uint32_t g = 0; g < shape_.groups.size(); ++g) REQUIRE(blocks_.pages().held_blocks(g) == 0);
  }

  uint64_t reused() const { return blocks_.reused_tokens(); }
  uint64_t evicted() const { return blocks_.pages().evicted_blocks(); }
  uint32_t refusals = 0;

 private:
  uint64_t digest(const HeldRequest& request, uint64_t before, int32_t token) const {
    return extend({before, request.salt + 1}, static_cast<uint32_t>(token)).high;
  }

  // Few stems and few branches, so that prefixes meet often and part at any token.
  std::vector<int32_t> prompt() {
    std::vector<int32_t> ids(1 + random_() % 60);
    const int32_t stem = static_cast<int32_t>(random_() % 3) * 1000;
    std::iota(ids.begin(), ids.end(), stem);
    if (random_() % 2) ids[random_() % ids.size()] += static_cast<int32_t>(random_() % 2);
    return ids;
  }

  void begin() {
    HeldRequest request;
    request.salt = random_() % 8 == 0;
    request.tokens = prompt();
    uint32_t cached = 0;
    const uint64_t id = next_id_++;
    REQUIRE(blocks_.begin(id, request.tokens, request.salt, &cached, nullptr) == ANYATTN_OK);
    REQUIRE(cached < request.tokens.size());
    for (const GroupShape& g : shape_.groups) REQUIRE(cached % g.block_size == 0);
    request.reserved = cached;
    learn(request, cached);
    held_.emplace(id, std::move(request));
  }

  void learn(HeldRequest& request, uint32_t computed) const {
    while (request.content.size() < computed) {
      const size_t p = request.content.size();
      const int32_t token = p < request.tokens.size() ? request.tokens[p] : -1;
      request.content.push_back(digest(request, p == 0 ? 99 : request.content[p - 1], token));
    }
  }

  void append(uint64_t id, HeldRequest& request) {
    // Tokens computed before they were named had the content "-1"; only name those that come next.
    if (request.tokens.size() < request.content.size() || request.tokens.size() + 3 > shape_.max_seq_len) return;
    const std::vector<int32_t> more{static_cast<int32_t>(random_() % 2), 7, 8};
    REQUIRE(blocks_.append(id, more, nullptr) == ANYATTN_OK);
    request.tokens.insert(request.tokens.end(), more.begin(), more.end());
  }

  void grow(uint64_t id, HeldRequest& request) {
    const auto computed = static_cast<uint32_t>(request.content.size());
    const uint32_t total = std::min<uint32_t>(computed + 1 + random_() % 30, shape_.max_seq_len);
    std::vector<std::vector<int32_t>> before;
    for (uint32_t g = 0; g < shape_.groups.size(); ++g) before.push_back(manager_row(g, id));
    const bool expected = fits(before, total);
    const int32_t status = blocks_.reserve(id, total, nullptr);
    REQUIRE((status == ANYATTN_OK) == expected);
    if (status != ANYATTN_OK) {
      REQUIRE((status == ANYATTN_MEMORY_NOT_NOW || status == ANYATTN_OUT_OF_MEMORY));
      for (uint32_t g = 0; g < shape_.groups.size(); ++g) REQUIRE(manager_row(g, id) == before[g]);
      ++refusals;
      return;
    }
    request.reserved = std::max(request.reserved, total);
    if (random_() % 5 == 0) return;  // a step that was planned and not run
    learn(request, total);
    for (uint32_t g = 0; g < shape_.groups.size(); ++g) write(g, id, request, computed, total);
    REQUIRE(blocks_.commit(id, total, nullptr) == ANYATTN_OK);
  }

  // The exact answer from first principles: pages without a held block are anybody's, blocks nobody holds in a page with one
  // are its group's.
  bool fits(const std::vector<std::vector<int32_t>>& rows, uint32_t total) const {
    std::set<int32_t> taken;
    uint64_t missing_pages = 0;
    for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
      const uint32_t per_page = shape_.groups[g].blocks_per_page;
      std::set<int32_t> blocks, pages;
      for (const auto& [id, request] : held_) {
        for (const int32_t block : manager_row(g, id)) {
          if (block < 0) continue;
          blocks.insert(block);
          pages.insert(block / static_cast<int32_t>(per_page));
        }
      }
      const uint32_t wanted = (total + shape_.groups[g].block_size - 1) / shape_.groups[g].block_size;
      const uint64_t need = wanted > rows[g].size() ? wanted - rows[g].size() : 0;
      const uint64_t unheld = pages.size() * per_page - blocks.size();
      if (need > unheld) missing_pages += (need - unheld + per_page - 1) / per_page;
      taken.insert(pages.begin(), pages.end());
    }
    return missing_pages <= shape_.num_pages - taken.size();
  }

  std::vector<int32_t> manager_row(uint32_t g, uint64_t id) const {
    const uint32_t width = blocks_.table_width(g);
    const uint32_t ratio = shape_.groups[g].block_size / shape_.groups[g].kernel_block_size;
    std::vector<int32_t> kernel(width, -9);
    REQUIRE(blocks_.block_table(g, std::vector<uint64_t>{id}, kernel.data(), width, nullptr) == ANYATTN_OK);
    std::vector<int32_t> row;
    for (uint32_t i = 0; i < width && kernel[i] != -9; i += ratio)
      row.push_back(kernel[i] < 0 ? -1 : kernel[i] / static_cast<int32_t>(ratio));
    return row;
  }

  Cell& cell(uint32_t g, int64_t slot) {
    const uint64_t per_page = uint64_t{shape_.groups[g].blocks_per_page} * shape_.groups[g].block_size;
    const uint64_t units_per_token = units_ / per_page;
    const uint64_t page = static_cast<uint64_t>(slot) / per_page;
    return cells_[page * units_ + static_cast<uint64_t>(slot) % per_page * units_per_token];
  }

  void write(uint32_t g, uint64_t id, const HeldRequest& request, uint32_t from, uint32_t to) {
    std::vector<int64_t> slots(to - from);
    REQUIRE(blocks_.slot_mapping(g, id, from, to - from, slots.data(), nullptr) == ANYATTN_OK);
    const uint64_t units_per_token = units_ / (uint64_t{shape_.groups[g].blocks_per_page} * shape_.groups[g].block_size);
    for (uint32_t p = from; p < to; ++p) {
      Cell* first = &cell(g, slots[p - from]);
      for (uint64_t u = 0; u < units_per_token; ++u) first[u] = {g, request.content[p]};
    }
  }

  void check_values(uint32_t g, uint64_t id, const HeldRequest& request) {
    const auto computed = static_cast<uint32_t>(request.content.size());
    const int32_t window = shape_.groups[g].window_left;
    const uint32_t first =
        window < 0 || computed < static_cast<uint32_t>(window) ? 0 : computed - static_cast<uint32_t>(window);
    if (first == computed) return;
    std::vector<int64_t> slots(computed - first);
    REQUIRE(blocks_.slot_mapping(g, id, first, computed - first, slots.data(), nullptr) == ANYATTN_OK);
    for (uint32_t p = first; p < computed; ++p) {
      const Cell& found = cell(g, slots[p - first]);
      REQUIRE(found.group == g);
      REQUIRE(found.content == request.content[p]);
    }
  }

  PoolShape shape_;
  BlockManager blocks_;
  std::mt19937 random_;
  uint64_t units_ = 1;  // of a page, so fine that every group's token is a whole number of them
  std::vector<Cell> cells_;
  std::map<uint64_t, HeldRequest> held_;
  uint64_t next_id_ = 1;
};

TEST_CASE("random_calls_never_mix_up_values_or_counts") {
  struct WorldCase {
    const char* claim;
    PoolShape shape;
  };
  const WorldCase cases[] = {
      {"one group", {24, 6, 100, true, {{4, 4, 1, -1, "full"}}}},
      {"kernel blocks smaller than manager blocks", {10, 6, 100, true, {{12, 4, 1, -1, "full"}}}},
      {"window beside full", {30, 6, 100, true, {{4, 4, 1, -1, "full"}, {4, 4, 1, 9, "window"}}}},
      {"unlike bytes and sizes", {14, 6, 100, true, {{4, 4, 3, -1, "small"}, {8, 8, 1, -1, "large"}, {4, 2, 2, 6, "window"}}}},
      {"window only", {12, 6, 100, true, {{2, 1, 2, 5, "window"}}}},
      {"no sharing", {24, 6, 100, false, {{4, 4, 2, -1, "full"}, {4, 4, 1, 3, "window"}}}},
  };
  for (const WorldCase& c : cases) {
    uint64_t reused = 0, evicted = 0, refusals = 0;
    for (uint32_t seed = 0; seed < 8; ++seed) {
      CAPTURE(c.claim);
      CAPTURE(seed);
      World world(c.shape, seed);
      for (int i = 0; i < 400; ++i) {
        CAPTURE(i);
        world.step();
        world.check();
      }
      world.release_all();
      reused += world.reused();
      evicted += world.evicted();
      refusals += world.refusals;
    }
    // The walk has been where it was meant to go.
    CAPTURE(c.claim);
    CHECK(refusals > 0);
    CHECK((reused > 0) == c.shape.sharing);
    CHECK((evicted > 0) == c.shape.sharing);
  }
}

}  // namespace
