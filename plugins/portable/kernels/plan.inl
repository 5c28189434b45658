// SPDX-License-Identifier: Apache-2.0
// The work list: which rows see which keys, and where each program of the fixed launch begins. One program a lane.
// All keys of all units stand in one line, which the programs share in equal pieces (as FlashMLA's scheduler and
// stream-K, arXiv:2301.03598, do): balanced whatever the lengths are, and at most one cut for each program.

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
  item.key_begin = item.key_end = item.reserved[0] = item.reserved[1] = 0;
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
  if (kFlat) item.key_begin -= item.key_begin % 8;  // rows are copied by eights
  item.tiles = (item.key_end - item.key_begin + tile.keys - 1) / tile.keys;
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
  place.last = place.head = place.tile = 0;
  const int64_t in_items = (tiles + tile.head_units - 1) / tile.head_units;
  place.item = lower_bound(lane.prefix, num_items, in_items);
  if (place.item < num_items && lane.prefix[place.item] * tile.head_units == tiles) return place;
  --place.item;
  const int rest = (int)(tiles - lane.prefix[place.item] * tile.head_units), each = lane.items[place.item].tiles;
  place.head = rest / each;
  place.tile = rest % each;
  if (cfg.invariant && place.tile > 0) {  // a unit stays whole: it belongs to the program in which it begins
    place.tile = 0;
    if (++place.head == tile.head_units) {
      place.head = 0;
      ++place.item;
    }
  }
  return place;
}

// Deals whole units, the longest first, forth and back over the programs, if that leaves them about equally busy. Causal
// prefill is the case in point: short and long blocks of rows pair up, and nothing is merged.
AA_FN bool deal_whole(const Lane& lane, int num_items, int64_t num_tiles) {
  if (cfg.invariant || num_items > kMaxSorted) return false;
  const int64_t units = (int64_t)num_items * tile.head_units;
  int seen = 0, busy = 0, total;
  for (int i = thread(); i < num_items; i += num_threads()) {
    const int own = lane.items[i].tiles;
    seen += own > 0;
    int before = 0;
    for (int j = 0; j < num_items; ++j) before += lane.items[j].tiles > own || (lane.items[j].tiles == own && j < i);
    lane.order[before] = i;
  }
  scan(seen, &total);
  if ((int64_t)total * tile.head_units < lane.slots && tile.cut_tiles == 0) return false;
  for (int s = thread(); s < lane.slots; s += num_threads()) {
    int64_t work = 0;
    for (int round = 0; dealt(lane, s, round) < units; ++round)
      work += lane.items[lane.order[dealt(lane, s, round) / tile.head_units]].tiles;
    busy += (work - tile.cut_tiles) * lane.slots * 100 > num_tiles * tile.head_units * (100 + tile.slack);
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
  const int64_t all = num_tiles * tile.head_units;
  if (deal_whole(lane, num_items, num_tiles)) {
    for (int s = thread(); s <= lane.slots; s += num_threads()) {
      Place place;
      place.item = place.head = 0;
      place.tile = kWhole;
      place.last = num_items * tile.head_units;
      if (dealt(lane, s, 0) < place.last) place.first = lane.items[lane.order[dealt(lane, s, 0) / tile.head_units]];
      lane.places[s] = place;
    }
    return;
  }
  const int64_t wanted = all / tile.min_tiles;
  int used = wanted < 1 ? 1 : wanted > lane.slots ? lane.slots : (int)wanted;
  // Wide rows are dear to cut: no more programs than leave the longest as long, so that equal requests end where programs do.
  if (cfg.latent && all > 0) used = (int)((all - 1) / ((all - 1) / used + 1) + 1);
  for (int s = thread(); s <= lane.slots; s += num_threads()) {
    Place place;
    place.item = num_items;
    place.head = place.tile = place.last = 0;
    if (s == 0) place.item = 0;
    if (s > 0 && s < used) place = place_at(lane, num_items, all * s / used);
    if (place.item < num_items) place.first = lane.items[place.item];
    if (place.tile > 0) {  // the last program that begins before the unit's end
      const int64_t end = all * s / used + place.first.tiles - place.tile;
      place.last = (int)(end * used / all);
      if (place.last > used - 1) place.last = used - 1;
      while (all * place.last / used >= end) --place.last;
      while (place.last + 1 < used && all * (place.last + 1) / used < end) ++place.last;
    }
    lane.places[s] = place;
  }
}
