// SPDX-License-Identifier: Apache-2.0
// Where the general path's schedule cuts: requests into items, the line of all units into places, and which units are in pieces. Included
// by schedule.cuh, and by a test that runs it on the host.
#pragma once

#include "cuda_common/scan.cuh"
#include "items.cuh"
#include "sm80/work.h"
#include "visible.cuh"

namespace anyattn::flash::sm80 {

__device__ inline Item make_item(const Work& work, const Mask& mask, const Batch& batch, int req, int index) {
  Item item;
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req], keys = batch.seq_lens[req];
  item.req = req;
  item.first_token = index * work.tokens;
  item.tokens = min(work.tokens, rows - item.first_token);
  const Interval seen = visible_to_rows(mask, is_causal(mask, batch, req), keys, keys - rows + item.first_token, item.tokens);
  item.key_begin = max(seen.begin, shared_keys(mask, batch, req));
  item.key_end = max(seen.end, item.key_begin);
  item.tiles = max(1, (item.key_end - item.key_begin + work.keys - 1) / work.keys);
  return item;
}

// Where the work at `at` of the line stands. Behind a unit's last tile, and inside a unit that is never cut: where the next one begins.
__device__ inline Place place_at(const Work& work, int num_items, int64_t at) {
  Place place{};
  place.item = cuda::last_not_above(work.before, num_items, at / work.head_units);
  place.first = work.items[place.item];
  const int64_t rest = at - work.before[place.item] * work.head_units;
  const int cost = work.cost_of(place.first);
  place.head = static_cast<int>(rest / cost);
  place.tile = static_cast<int>(rest % cost);
  if (place.tile == 0 || (place.tile < place.first.tiles && !work.invariant)) return place;
  place.tile = 0;
  if (++place.head == work.head_units) {
    place.head = 0;
    ++place.item;
  }
  if (place.item < num_items) place.first = work.items[place.item];
  return place;
}

// The line of `num_items` items, `all` tiles with costs, shared by the first `used` blocks of the launch.
struct Sharing {
  int num_items, used;
  int64_t all;

  __device__ Sharing(const Work& work, int64_t items, int64_t cost)
      : num_items(static_cast<int>(items)), all(cost * work.head_units) {
    used = static_cast<int>(min(static_cast<int64_t>(work.num_blocks), (all + work.min_cost - 1) / work.min_cost));
  }
  __device__ Place place(const Work& work, int block) const {
    Place end{};
    end.item = num_items;
    return block < used ? place_at(work, num_items, all * block / used) : end;
  }
  // The unit that begins in `block` and goes on in the next; pieces 0: none does. Reads places.
  __device__ CutUnit cut_behind(const Work& work, int block) const {
    const Place next = work.places[block + 1], own = work.places[block];
    if (next.tile == 0 || (own.item == next.item && own.head == next.head && own.tile > 0)) return {};
    // Block p begins at floor(all p / used): the last one before the unit's last tile ends.
    const int64_t end = all * (block + 1) / used + next.first.tiles - next.tile;
    const auto last = static_cast<int32_t>((end * used + all - 1) / all - 1);
    return {block, last - block + 1, next.head, 0, next.first};
  }
};

}  // namespace anyattn::flash::sm80
