// SPDX-License-Identifier: Apache-2.0
// The schedule of Hopper's decode, its device functions compiled for the host: whatever the batch, each chunk of each unit is done once, and
// the pieces of a unit agree on where it began and how many they are.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"

#include "device_names.h"

#include "sm90/decode_cut.cuh"

namespace {

using namespace anyattn::flash;
using namespace anyattn::flash::sm90;

struct Cut {
  std::vector<int> starts{0}, lens;
  std::vector<Item> items;
  std::vector<int64_t> before;
  PlanArgs args{};
  Row row{};
  int team_warps = 0;

  Cut(const std::vector<int>& lengths, int query, int ranks, int num_heads, bool invariant, int window_left) : lens(lengths) {
    for (size_t i = 0; i < lens.size(); ++i) starts.push_back(starts.back() + query);
    args.batch.query_start_loc = starts.data();
    args.batch.seq_lens = lens.data();
    args.batch.num_reqs = static_cast<int>(lens.size());
    args.mask = {kCausal, window_left, -1};
    args.max_query = query;
    args.tokens = 2;
    args.num_heads = num_heads;
    args.ranks = ranks;
    args.warps = num_heads % 2 ? 8 : 4;
    args.chunks_per_block = 4;
    args.min_chunks = args.few_chunks = 4;
    args.unit_cost = 16;
    args.invariant = invariant;
    int64_t cost = 0;
    for (int req = 0; req < args.batch.num_reqs; ++req)
      for (int i = 0; i < items_of(args, args.batch, req); ++i) items.push_back(make_item(args, req, i));
    const int64_t units = static_cast<int64_t>(items.size()) * num_heads;
    const int unit_cost = units > ranks ? args.unit_cost : 0;
    for (const Item& item : items) {
      before.push_back(cost);
      cost += chunks_of(item) + unit_cost;
    }
    args.items = items.data();
    args.before = before.data();
    const int64_t all = cost * num_heads;
    const Split split = split_of(args, units, all);
    team_warps = split.team_warps;
    row = {all, split.lines, static_cast<int>(items.size()), unit_cost};
  }
};

struct Unit {
  std::vector<int> done;  // times, a chunk each; one where there is none
  int pieces = 1, from_line = -1, handed_on = 0;
};

// What is wrong, in words; empty: nothing. Walks each line as the kernel does.
const char* follow(const Cut& cut, std::map<std::pair<int, int>, Unit>& units) {
  for (int rank = 0; rank < cut.row.used; ++rank) {
    Line line{};
    make_line(cut.args, cut.row, rank, line);
    if (line.cost < 0) return "a line of negative cost";
    int index = line.item_index, head = line.head, begin = line.begin, left = line.cost;
    for (bool first = true; left > 0; first = false) {
      const Item& item = cut.items[static_cast<size_t>(index)];
      const int end = std::min(item.end, begin + left);
      left = end == item.end ? left - std::max(1, end - begin) - cut.row.unit_cost : 0;
      if (left < 0) return "a line ends behind a unit's last chunk";
      Unit& unit = units[{index, head}];
      unit.done.resize(static_cast<size_t>(std::max(1, item.end - item.begin)));
      if (item.begin == item.end) ++unit.done[0];
      for (int chunk = begin; chunk < end; ++chunk) ++unit.done[static_cast<size_t>(chunk - item.begin)];
      const int from_line = first && line.first_pieces > 1 ? line.first_line : rank;
      const int pieces = from_line != rank ? line.first_pieces : left == 0 ? line.last_pieces : 1;
      if (pieces > 1) {
        if (unit.handed_on > 0 && (unit.pieces != pieces || unit.from_line != from_line)) return "pieces disagree";
        if (rank - from_line >= pieces) return "more pieces than were said";
        unit.pieces = pieces;
        unit.from_line = from_line;
        ++unit.handed_on;
      } else if (begin != item.begin || end != item.end) {
        return "a unit is cut and nobody knows";
      }
      if (++head == cut.args.num_heads) head = 0, ++index;
      if (left > 0) begin = cut.items[static_cast<size_t>(index)].begin;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("decode_cut_gives_each_chunk_to_one_line_and_counts_pieces_right") {
  std::mt19937 random(7);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int cut_units = 0;
  for (int n = 0; n < 1500; ++n) {
    std::vector<int> lens(static_cast<size_t>(1 + draw(n % 3 == 0 ? 200 : 9)));
    const int kind = draw(4), most = 1 << draw(15);
    for (int& len : lens) len = kind == 0 ? most : kind == 1 ? draw(most + 1) : kind == 2 ? (draw(10) ? 500 : 30000) : draw(40);
    const int query = 1 + draw(5), ranks = draw(3) ? 132 : 1 + draw(200), heads = 1 + draw(8);
    const bool invariant = draw(4) == 0;
    const Cut cut(lens, query, ranks, heads, invariant, draw(3) ? -1 : draw(3000));
    INFO("case ", n, ": ", lens.size(), " requests, ", ranks, " blocks, ", heads, " heads, invariant ", invariant);
    std::map<std::pair<int, int>, Unit> units;
    REQUIRE(std::string(follow(cut, units)) == "");
    REQUIRE(cut.row.used <= ranks * (cut.args.warps / cut.team_warps));
    REQUIRE((!invariant || cut.team_warps == cut.args.warps));
    REQUIRE(units.size() == cut.items.size() * static_cast<size_t>(heads));
    bool right = true;
    for (const auto& [key, unit] : units) {
      right = right && std::all_of(unit.done.begin(), unit.done.end(), [](int times) { return times == 1; });
      right = right && unit.handed_on == (unit.pieces > 1 ? unit.pieces : 0) && !(invariant && unit.pieces > 1);
      cut_units += unit.pieces > 1;
    }
    REQUIRE(right);
  }
  CHECK(cut_units > 100);
}

TEST_CASE("divisor_gives_exact_quotients") {
  std::mt19937 random(11);
  for (int by = 1; by < 5000; ++by) {
    const anyattn::cuda::Divisor divisor(by);
    bool right = true;
    for (int n : {0, 1, by - 1, by, by + 1, 0x7fffffff, 0x7fffffff / by * by, 0x7fffffff / by * by - 1})
      right = right && divisor.quotient(n) == n / by;
    for (int i = 0; i < 20; ++i) {
      const int n = static_cast<int>(random() >> 1) / by * by - (i % 2);
      right = right && (n < 0 || divisor.quotient(n) == n / by);
    }
    INFO("by ", by);
    REQUIRE(right);
  }
}
