// SPDX-License-Identifier: Apache-2.0
// The schedule of the general path, its device functions compiled for the host: whatever the batch, each tile of each unit is done once,
// and the list of cut units names the pieces that blocks leave.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"

#include "device_names.h"

#include "sm80/cut.cuh"

namespace {

using namespace anyattn::flash;
using namespace anyattn::flash::sm80;

struct Shares {
  std::vector<int> starts{0}, lens;
  std::vector<Item> items;
  std::vector<int64_t> before;
  std::vector<Place> places;
  Work work{};

  Shares(const std::vector<int>& lengths, int query, const Work& wanted, int window_left) : lens(lengths), work(wanted) {
    Batch batch{};
    for (size_t i = 0; i < lens.size(); ++i) starts.push_back(starts.back() + std::min(query, std::max(1, lens[i])));
    batch.query_start_loc = starts.data();
    batch.seq_lens = lens.data();
    batch.num_reqs = static_cast<int>(lens.size());
    work.max_query = query;
    int64_t cost = 0;
    for (int req = 0; req < batch.num_reqs; ++req)
      for (int i = 0; i < items_of(work, batch, req); ++i) {
        items.push_back(make_item(work, {kCausal, window_left, -1}, batch, req, i));
        before.push_back(cost);
        cost += work.cost_of(items.back());
      }
    work.items = items.data();
    work.before = before.data();
    const Sharing sharing(work, static_cast<int64_t>(items.size()), cost);
    for (int block = 0; block <= work.num_blocks; ++block) places.push_back(sharing.place(work, block));
    work.places = places.data();
  }
};

struct Unit {
  std::vector<int> done;    // times, a tile each
  std::vector<int> blocks;  // that did a piece of it; whole units none
};

// Walks each block's places as the kernel does.
std::map<std::pair<int, int>, Unit> follow(const Shares& shares) {
  std::map<std::pair<int, int>, Unit> units;
  for (int block = 0; block < shares.work.num_blocks; ++block) {
    const Place end = shares.places[static_cast<size_t>(block) + 1];
    Place at = shares.places[static_cast<size_t>(block)];
    const auto position = [](const Place& p) { return std::array{p.item, p.head, p.tile}; };
    while (position(at) < position(end)) {
      const Item& item = shares.items[static_cast<size_t>(at.item)];
      const bool last = at.item == end.item && at.head == end.head;
      const int tile_end = last ? end.tile : item.tiles;
      Unit& unit = units[{at.item, at.head}];
      unit.done.resize(static_cast<size_t>(item.tiles));
      for (int tile = at.tile; tile < tile_end; ++tile) ++unit.done[static_cast<size_t>(tile)];
      if (at.tile > 0 || tile_end < item.tiles) unit.blocks.push_back(block);
      if (last) break;
      at.tile = 0;
      if (++at.head == shares.work.head_units) at.head = 0, ++at.item;
    }
  }
  return units;
}

}  // namespace

TEST_CASE("general_cut_gives_each_tile_to_one_block_and_lists_the_units_in_pieces") {
  std::mt19937 random(9);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int in_pieces = 0;
  for (int n = 0; n < 1000; ++n) {
    std::vector<int> lens(static_cast<size_t>(1 + draw(n % 3 == 0 ? 100 : 6)));
    const int kind = draw(3), most = 1 << draw(14);
    for (int& len : lens) len = kind == 0 ? most : kind == 1 ? draw(most + 1) : (draw(10) ? 500 : 30000);
    Work work{};
    work.num_blocks = draw(3) ? 396 : 1 + draw(300);
    work.tokens = 1 << draw(6);
    work.head_units = 1 + draw(8);
    work.keys = 64;
    work.unit_cost = draw(5);
    work.min_cost = 1 + draw(4);
    work.invariant = draw(5) == 0;
    const Shares shares(lens, draw(2) ? 1 : 1 + draw(700), work, draw(3) ? -1 : draw(3000));
    INFO("case ", n, ": ", lens.size(), " requests, ", work.num_blocks, " blocks, ", work.head_units, " units an item");
    const auto units = follow(shares);
    REQUIRE(units.size() == shares.items.size() * static_cast<size_t>(work.head_units));
    int64_t cost = 0;
    for (const Item& item : shares.items) cost += shares.work.cost_of(item);
    const Sharing sharing(shares.work, static_cast<int64_t>(shares.items.size()), cost);
    std::map<std::pair<int, int>, std::vector<int>> listed;
    for (int block = 0; block + 1 < sharing.used; ++block) {
      const CutUnit cut = sharing.cut_behind(shares.work, block);
      if (cut.pieces == 0) continue;
      std::vector<int>& blocks = listed[{shares.places[static_cast<size_t>(block) + 1].item, cut.head}];
      REQUIRE(blocks.empty());
      for (int piece = 0; piece < cut.pieces; ++piece) blocks.push_back(cut.block + piece);
    }
    bool right = true;
    for (const auto& [key, unit] : units) {
      right = right && std::all_of(unit.done.begin(), unit.done.end(), [](int times) { return times == 1; });
      const auto found = listed.find(key);
      right = right && (found == listed.end() ? unit.blocks.empty() : found->second == unit.blocks && !work.invariant);
      in_pieces += found != listed.end();
    }
    REQUIRE(right);
  }
  CHECK(in_pieces > 100);
}
