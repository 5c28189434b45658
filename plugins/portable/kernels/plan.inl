// SPDX-License-Identifier: Apache-2.0
// The work list: which rows see which keys, and where each team of the fixed launch begins. One program a lane.
// All keys of all units stand in one line, which the teams share in equal pieces (as FlashMLA's scheduler and
// stream-K, arXiv:2301.03598, do): balanced whatever the lengths are, and at most one cut for each team.

AA_FN int items_of(const BatchView& batch, int req) {
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req];
  if (rows < tile.min_query || rows > tile.max_query) return 0;
  return (rows + tile.tokens - 1) / tile.tokens;
}

AA_FN Item make_item(const BatchView& batch, int req, int index) {
  Item item;
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req];
  item.req = req;
  item.first_token = index * tile.tokens;
  item.tokens = least(tile.tokens, rows - item.first_token);
  item.key_begin = item.key_end = 0;
  const int keys = batch.seq_lens[req], first_position = keys - rows;
  const bool causal = is_causal(batch, req);
  for (int t = 0; t < item.tokens; ++t) {
    int begin, end;
    visible(batch, req, keys, causal, first_position + item.first_token + t, &begin, &end);
    if (begin >= end) continue;
    const bool first = item.key_begin >= item.key_end;
    item.key_begin = first ? begin : least(item.key_begin, begin);
    item.key_end = first ? end : most(item.key_end, end);
  }
  item.tiles = (item.key_end - first_tile_of(item) + tile.keys - 1) / tile.keys;
  return item;
}

// First index in [0, count) of an ascending array whose value is not below `wanted`.
template <class T>
AA_FN int lower_bound(const T* values, int count, T wanted) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

AA_FN Place place_at(const Lane& lane, int num_items, int64_t tiles) {
  Place place;
  place.begun = place.last = place.head = place.tile = 0;
  const int heads = heads_of(lane);
  place.item = lower_bound(lane.prefix, num_items, (tiles + heads - 1) / heads);
  if (place.item < num_items && lane.prefix[place.item] * heads == tiles) return place;
  --place.item;
  const int rest = (int)(tiles - lane.prefix[place.item] * heads), each = lane.items[place.item].tiles;
  place.head = rest / each;
  place.tile = rest % each;
  if (cfg.invariant && place.tile > 0) {  // a unit stays whole: it belongs to the program in which it begins
    place.tile = 0;
    if (++place.head == heads) {
      place.head = 0;
      ++place.item;
    }
  }
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

AA_FN void plan(const PlanArgs& a, const Lane& lane, bool keep) {
  const BatchView& batch = a.batch;
  if (keep && thread() == 0) *a.kept = batch;
  int num_items = 0;
  for (int first = 0; first < batch.num_reqs; first += num_threads()) {
    const int req = first + thread();
    const int count = req < batch.num_reqs ? items_of(batch, req) : 0;
    int total;
    const int before = scan(count, &total);
    if (req < batch.num_reqs) lane.first_item[req] = num_items + before;
    num_items += total;
  }
  barrier();
  int64_t num_tiles = 0;
  for (int first = 0; first < num_items; first += num_threads()) {
    const int index = first + thread();
    int count = 0, total;
    if (index < num_items) {
      const int req = lower_bound(lane.first_item, batch.num_reqs, index + 1) - 1;  // the last that begins at or before
      const Item item = make_item(batch, req, index - lane.first_item[req]);
      lane.items[index] = item;
      count = item.tiles;
    }
    const int before = scan(count, &total);
    if (index < num_items) lane.prefix[index] = num_tiles + before;
    num_tiles += total;
  }
  barrier();
  const int heads = heads_of(lane);
  const int64_t all = num_tiles * heads, wanted = all / tile.min_tiles;
  int used = wanted < 1 ? 1 : wanted > lane.teams ? lane.teams : (int)wanted;
  // Wide rows are dear to cut: no more teams than leave the longest as long, so that equal requests end where teams do.
  if (cfg.latent && all > 0) used = (int)((all - 1) / ((all - 1) / used + 1) + 1);
  const bool whole = deal_whole(lane, num_items, num_tiles);
  for (int s = thread(); s <= lane.teams; s += num_threads()) {
    Place place;
    place.item = s > 0 && !whole ? num_items : 0;
    place.head = place.begun = place.last = 0;
    place.tile = whole ? kWhole : 0;
    if (whole) {
      place.last = num_items * heads;
      if (dealt(lane, s, 0) < place.last) place.first = lane.items[lane.order[dealt(lane, s, 0) / heads]];
    } else {
      if (s > 0 && s < used) place = place_at(lane, num_items, all * s / used);
      if (place.item < num_items) place.first = lane.items[place.item];
    }
    if (place.tile > 0) {  // the last teams that begin no later than the unit, and before its end
      const int64_t begin = all * s / used - place.tile;
      place.begun = (int)(((begin + 1) * used - 1) / all);
      place.last = (int)(((begin + place.first.tiles) * used - 1) / all);
    }
    lane.places[s] = place;
  }
}
