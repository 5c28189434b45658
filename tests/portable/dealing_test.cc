// SPDX-License-Identifier: Apache-2.0
// What programs of an H200 get of a decode step, by the kernels' own plan run on the host: pieces, programs, tiles of each.
// bugs.md 103 (one split although the device idles) and 105 (splits capped for long contexts), as counts.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "anyattn/absent_device.hpp"
#include "kernels.h"
#include "vendor/host_programs.h"

namespace {

using namespace anyattn::portable;

struct Dealt {
  int programs = 0;     // that have work
  int slots = 0;        // of the launch
  int64_t busiest = 0;  // tiles of 64 keys
  int64_t tiles = 0;    // over all programs
  int pieces = 0;       // of the unit that is cut most
  double balance() const { return static_cast<double>(tiles) / static_cast<double>(busiest * slots); }
};

// One query token a request, bfloat16, head 128.
Dealt deal(int q_heads, int kv_heads, const std::vector<int32_t>& lens) {
  Specialisation spec;
  Config& cfg = spec.cfg;
  cfg.kind = cfg.rows = cfg.out_kind = kBF16;
  cfg.head_size = cfg.head_size_v = 128;
  cfg.group = q_heads / kv_heads;
  cfg.num_kv_heads = kv_heads;
  cfg.block_size = 16;
  cfg.window_left = cfg.window_right = -1;
  cfg.cp_world = cfg.cp_interleave = 1;
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  choose_tiles(anyattn::Host(&host), *anyattn::absent_cuda_device("sm_90"), spec);
  const Tile& tile = spec.lanes[0];
  REQUIRE(tile.keys == 64);

  const int count = static_cast<int>(lens.size());
  std::vector<int32_t> starts(lens.size() + 1), order(lens.size()), first_item(lens.size() + 1);
  for (int i = 0; i <= count; ++i) starts[static_cast<size_t>(i)] = i;
  std::vector<Item> items(lens.size());
  std::vector<int64_t> prefix(lens.size() + 1);
  Lane lane{};
  lane.team = team_of(tile);
  lane.teams = tile.slots / lane.team;
  std::vector<Place> places(static_cast<size_t>(lane.teams) + 1);
  lane.places = places.data();
  lane.items = items.data();
  lane.prefix = prefix.data();
  lane.order = order.data();
  lane.first_item = first_item.data();
  PlanArgs args{};
  args.batch.query_start_loc = starts.data();
  args.batch.seq_lens = lens.data();
  args.batch.num_reqs = args.batch.num_tokens = count;
  args.lane = lane;
  Programs(cfg, tile).plan(args);

  Dealt dealt;
  dealt.slots = tile.slots;
  const int heads = tile.head_units / lane.team;
  const auto stands = [&](const Place& place) {
    int64_t at = 0;
    for (int i = 0; i < std::min(place.item, count); ++i) at += int64_t{items[static_cast<size_t>(i)].tiles} * heads;
    return place.item < count ? at + int64_t{place.head} * place.first.tiles + place.tile : at;
  };
  for (int t = 0; t < lane.teams; ++t) {
    const Place &from = places[static_cast<size_t>(t)], &to = places[static_cast<size_t>(t) + 1];
    int64_t own = 0;
    if (from.tile == kWhole)
      for (int n = t, round = 0; n < count * heads; ++round, n = round * lane.teams + (round % 2 ? lane.teams - 1 - t : t))
        own += items[static_cast<size_t>(order[static_cast<size_t>(n / heads)])].tiles;
    else
      own = stands(to) - stands(from);
    dealt.programs += own > 0 ? lane.team : 0;
    dealt.tiles += own * lane.team;
    dealt.busiest = std::max(dealt.busiest, own);
    if (own > 0) dealt.pieces = std::max(dealt.pieces, from.tile > 0 ? from.last - from.begun + 1 : 1);
    if (from.tile > 0) {  // the teams named are those that hold the unit
      const int64_t begin = stands(from) - from.tile, end = begin + from.first.tiles;
      CHECK(stands(places[static_cast<size_t>(from.begun)]) <= begin);
      CHECK(stands(places[static_cast<size_t>(from.begun) + 1]) > begin);
      CHECK(stands(places[static_cast<size_t>(from.last)]) < end);
      CHECK(stands(places[static_cast<size_t>(from.last) + 1]) >= end);
    }
  }
  return dealt;
}

}  // namespace

TEST_CASE("dealing_splits_a_few_heads_over_programs_that_would_idle") {
  for (const int kv_heads : {1, 2})
    for (const int group : {8, 16})
      for (const int keys : {512, 640}) {
        CAPTURE(kv_heads);
        CAPTURE(group);
        CAPTURE(keys);
        const Dealt dealt = deal(kv_heads * group, kv_heads, {keys});
        CHECK(dealt.pieces >= 2);
        CHECK(dealt.pieces == keys / 64);
        CHECK(dealt.programs == kv_heads * dealt.pieces);
        CHECK(dealt.busiest == 1);
      }
  const Dealt wide = deal(8, 1, {32768});  // 512 tiles for 264 programs
  CHECK(wide.programs == wide.slots);
  CHECK(wide.pieces == wide.slots);
  CHECK(wide.busiest == 2);
}

TEST_CASE("dealing_uses_the_whole_device_however_long_one_request_is") {
  double before = 1e9;  // tiles of the busiest program for each 1,000 keys
  for (const int keys : {4096, 16384, 65536, 131072}) {
    CAPTURE(keys);
    const Dealt dealt = deal(32, 8, {keys});
    CHECK(dealt.tiles == keys / 64 * 8);
    CHECK(dealt.programs == dealt.slots);
    CHECK(dealt.balance() > 0.96);
    CHECK(static_cast<double>(dealt.busiest) / keys <= before);
    before = static_cast<double>(dealt.busiest) / keys;
  }
  CHECK(deal(32, 8, {1024}).programs == 128);  // a tile each
  CHECK(deal(32, 8, {65536}).balance() >= 0.8 * deal(32, 8, std::vector<int32_t>(16, 4096)).balance());
}

TEST_CASE("dealing_cuts_no_unit_where_whole_ones_keep_programs_as_busy") {
  const Dealt even = deal(32, 8, std::vector<int32_t>(64, 500));  // 512 units of 8 tiles for 264 programs
  CHECK(even.pieces == 1);
  CHECK(even.busiest == 16);
  CHECK(even.balance() > 0.96);
  const Dealt odd = deal(32, 8, std::vector<int32_t>(256, 500));  // whole, the busiest would have two tiles more than the mean
  CHECK(odd.pieces == 2);
  CHECK(odd.balance() > 0.98);
  std::vector<int32_t> skew(64, 512);
  skew[17] = 32768;
  const Dealt one_long = deal(32, 8, skew);
  CHECK(one_long.pieces > 8);
  CHECK(one_long.balance() > 0.96);
}
