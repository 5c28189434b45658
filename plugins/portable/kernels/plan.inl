// SPDX-License-Identifier: Apache-2.0
// The work list: which rows see which keys, and where each team of the fixed launch begins. One program a lane.
// All keys of all units stand in one line, which the teams share in equal pieces (as FlashMLA's scheduler and
// stream-K, arXiv:2301.03598, do): balanced whatever the lengths are, and at most one cut for each team.

AA_FN int items_of(const BatchView& batch, int req) {
  const int rows = query_len(batch, req);
  return rows < tile.min_query || rows > tile.max_query ? 0 : (rows + tile.tokens - 1) / tile.tokens;
}

AA_FN Item list_item(const BatchView& batch, int req, int index) {
  const bool causal = cfg.causality == kPerRequest ? batch.causal[req] != 0 : cfg.causality == kCausal;
  Item item = make_item(batch, req, index, batch.seq_lens[req], causal);
  item.key_begin = kForever;
  for (int t = 0; t < item.tokens; ++t) {
    const Keys seen = visible(batch, item, item.position + t);
    if (seen.begin >= seen.end) continue;
    item.key_begin = least(item.key_begin, seen.begin);
    item.key_end = most(item.key_end, seen.end);
  }
  if (item.key_end == 0) item.key_begin = 0;
  item.tiles = (item.key_end - first_tile_of(item) + tile.keys - 1) / tile.keys;
  return item;
}

// First index in [0, count) of an ascending array whose value is not below `wanted`.
template <class T>
AA_FN int lower_bound(const T* values, int count, T wanted) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (values[middle] < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

AA_FN Place place_at(const Lane& lane, int num_items, int64_t tiles) {
  Place place = {};
  const int heads = heads_of(lane);
  place.item = lower_bound(lane.prefix, num_items, (tiles + heads - 1) / heads);
  if (place.item < num_items && lane.prefix[place.item] * heads == tiles) return place;
  --place.item;
  const int rest = (int)(tiles - lane.prefix[place.item] * heads), each = lane.items[place.item].tiles;
  place.head = rest / each;
  place.tile = rest % each;
  if (cfg.invariant && place.tile > 0) next_unit(place, heads);  // a unit is its program's in which it begins
  return place;
}

// Deals whole units, the longest first, forth and back over the teams, if that leaves them about equally busy. Causal
// prefill is the case in point: short and long blocks of rows pair up, and nothing is merged.
AA_FN bool deal_whole(const Lane& lane, int num_items, int64_t num_tiles) {
  if (cfg.invariant || num_items > kMaxSorted) return false;
  const int heads = heads_of(lane);
  int seen = 0, busy = 0, total;
  for (int i = thread(); i < num_items; i += num_threads()) {
    const int own = lane.items[i].tiles;
    seen += own > 0;
    int before = 0;
    for (int j = 0; j < num_items; ++j) before += lane.items[j].tiles > own || (lane.items[j].tiles == own && j < i);
    lane.order[before] = i;
  }
  scan(seen, &total);
  if (total * heads < lane.teams && tile.cut_tiles == 0) return false;
  for (int s = thread(); s < lane.teams; s += num_threads()) {
    int64_t work = 0;
    for (int round = 0; dealt(lane, s, round) < (int64_t)num_items * heads; ++round)
      work += lane.items[lane.order[dealt(lane, s, round) / heads]].tiles;
    busy += (work - tile.cut_tiles) * lane.teams * 100 > num_tiles * heads * (100 + tile.slack);
  }
  scan(busy, &total);
  return total == 0;
}

// to[i] is the sum of value(0) to value(i - 1); returns that of all. All threads together.
template <class Sum, class Value>
AA_FN Sum sums_before(int count, Sum* to, const Value& value) {
  Sum all = 0;
  for (int first = 0; first < count; first += num_threads()) {
    const int i = first + thread();
    int total;
    const int before = scan(i < count ? value(i) : 0, &total);
    if (i < count) to[i] = all + before;
    all += total;
  }
  barrier();
  return all;
}

AA_FN void plan(const PlanArgs& a) {
  const BatchView& batch = a.batch;
  const Lane& lane = a.lane;
  if (a.kept && thread() == 0) *a.kept = batch;
  const int num_items = sums_before(batch.num_reqs, lane.first_item, [&](int req) { return items_of(batch, req); });
  const int64_t num_tiles = sums_before(num_items, lane.prefix, [&](int i) {
    const int req = lower_bound(lane.first_item, batch.num_reqs, i + 1) - 1;  // the last that begins at or before
    lane.items[i] = list_item(batch, req, i - lane.first_item[req]);
    return lane.items[i].tiles;
  });
  const int heads = heads_of(lane);
  const int64_t all = num_tiles * heads, wanted = all / tile.min_tiles;
  int used = wanted < lane.teams ? most(1, (int)wanted) : lane.teams;
  // Wide rows are dear to cut: no more teams than leave the longest as long, so that equal requests end where teams do.
  if (cfg.latent && all > 0) used = (int)((all - 1) / ((all - 1) / used + 1) + 1);
  const bool whole = deal_whole(lane, num_items, num_tiles);
  for (int s = thread(); s <= lane.teams; s += num_threads()) {
    Place place = {};
    if (whole) {
      place.tile = kWhole;
      place.last = num_items * heads;
      if (dealt(lane, s, 0) < place.last) place.item = lane.order[dealt(lane, s, 0) / heads];
    } else if (s > 0) {
      place.item = num_items;
      if (s < used) place = place_at(lane, num_items, all * s / used);
    }
    if (place.item < num_items) place.first = lane.items[place.item];
    if (place.tile > 0) {  // the last teams that begin no later than the unit, and before its end
      const int64_t begin = all * s / used - place.tile;
      place.begun = (int)(((begin + 1) * used - 1) / all);
      place.last = (int)(((begin + place.first.tiles) * used - 1) / all);
    }
    lane.places[s] = place;
  }
}
