// SPDX-License-Identifier: Apache-2.0
// Attention over tiles of keys, the online softmax in between (FlashAttention-2, arXiv:2307.08691, algorithm 1: its O, m and l
// are State's; keys are split over programs as in arXiv:2311.01282).
// The words of a vendor (AA_FN, thread, barrier, tiles, dots, row_max ...) and `cfg`, `tile` come from the file around this one.

// A piece of work: an item's rows, heads of one kv head, columns of v, keys [first_key, last_key).
struct Unit : Item {
  int first_key, last_key;
  int kv_head, first_head, heads, column;
};

AA_FN int least(int a, int b) { return a < b ? a : b; }
AA_FN int most(int a, int b) { return a > b ? a : b; }

// Keys of a shard among the first `length` positions, and where local key l stands (attention.h).
AA_FN int local_count(int length) {
  if (cfg.cp_world == 1) return length;
  const int round = cfg.cp_interleave * cfg.cp_world;
  const int rest = length % round - cfg.cp_interleave * cfg.cp_rank;
  return length / round * cfg.cp_interleave + most(0, least(rest, cfg.cp_interleave));
}
AA_FN int position_of(int key) {
  if (cfg.cp_world == 1) return key;
  return (key / cfg.cp_interleave * cfg.cp_world + cfg.cp_rank) * cfg.cp_interleave + key % cfg.cp_interleave;
}

// Query rows of a request in this step.
AA_FN int query_len(const BatchView& batch, int req) { return batch.query_start_loc[req + 1] - batch.query_start_loc[req]; }

// Local keys [begin, end) that the row at position p sees; empty: 0, 0. Every mask is one interval, since causality, window
// and ranges all hold the own position.
struct Keys {
  int begin, end;
};
AA_FN Keys visible(const BatchView& batch, const Item& item, int p) {
  int first = 0, last = item.causal ? least(item.keys, p + 1) : item.keys;
  if (cfg.window_left >= 0) first = most(0, p - cfg.window_left);
  if (cfg.window_right >= 0 && !item.causal) last = least(item.keys, p + cfg.window_right + 1);
  if (cfg.mm_prefix) {
    for (int i = batch.mm_start[item.req]; i < batch.mm_start[item.req + 1]; ++i) {
      const int low = batch.mm_ranges[2 * i], high = batch.mm_ranges[2 * i + 1];
      if (p < low || p > high) continue;
      first = least(first, most(low, 0));
      last = most(last, least(high + 1, item.keys));
    }
  }
  const bool none = first >= last;
  return {none ? 0 : local_count(first), none ? 0 : local_count(last)};
}

// The block of a key (ragged keys: the request's first row); -1 outside the piece.
AA_FN int block_of(const BatchView& batch, const Unit& u, int key) {
  if (key >= u.last_key) return -1;
  return cfg.block_size == 0 ? batch.key_start_loc[u.req]
                             : batch.block_table[(int64_t)u.req * batch.table_stride + key / most(cfg.block_size, 1)];
}
// Where its row lies; -1 where there is none.
AA_FN int64_t offset_of(const AttendArgs& a, const Rows& rows, int key, int found) {
  const bool paged = cfg.block_size > 0, known = paged ? (uint64_t)(int64_t)found < a.num_blocks : found >= 0;
  const int64_t block = paged ? found : 0, token = paged ? key % most(cfg.block_size, 1) : (int64_t)found + key;
  return known ? block * a.block_bytes + token * rows.token_bytes : -1;
}

// The blocks of this thread's rows of a tile of keys. Asked for one tile ahead of the loads and made offsets at the step's end: no
// load and no product waits for the table.
struct RowBlocks {
  int at[kLookups];
};
AA_FN RowBlocks find_rows(const BatchView& batch, const Unit& u, int first) {
  RowBlocks found;
  AA_UNROLL
  for (int n = 0; n < kLookups; ++n) {
    const int row = thread() + n * kThreads;
    found.at[n] = row < tile.keys ? block_of(batch, u, first + row) : -1;
  }
  return found;
}
AA_FN void post_rows(const AttendArgs& a, const Tiles& tiles, int stage, int first, const RowBlocks& found) {
  AA_UNROLL
  for (int n = 0; !kFed && n < kLookups; ++n) {
    const int row = thread() + n * kThreads;
    if (row >= tile.keys) continue;
    tiles.offsets(stage)[2 * row] = offset_of(a, a.k, first + row, found.at[n]);
    tiles.offsets(stage)[2 * row + 1] = offset_of(a, a.v, first + row, found.at[n]);
  }
}

AA_FN void load_query(const AttendArgs& a, const Unit& u, const Tiles& tiles) {
  const int chunks = tile.rows * kChunksQ;
  for (int n = 0; n < (chunks + kThreads - 1) / kThreads; ++n) {
    const int i = thread() + n * kThreads;
    if (chunks % kThreads != 0 && i >= chunks) break;
    const int row = i / kChunksQ, chunk = i % kChunksQ, element = chunk * kChunk;
    const int token = row / tile.heads, head = row % tile.heads;
    const bool inside = token < u.tokens && head < u.heads && element < cfg.head_size;
    const bool second = cfg.latent && element >= cfg.head_size_v;
    const char* from = a.q[second].at(u.row + token, u.first_head + head);
    tiles.fill_q(row, chunk, from + (element - second * cfg.head_size_v) * kElementBytes, inside);
  }
}

// The call's scale of a kv head's keys or values.
AA_FN float call_scale(const float* scales, int stride, int kv_head) { return scales ? scales[kv_head * stride] : 1; }

// Scores are kept in base 2. Where nothing is added to them, the factor enters with the exponent, one operation a score.
AA_FN constexpr bool plain_scores() { return cfg.soft_cap == 0 && cfg.alibi == kAlibiNone; }

AA_FN float biased(float s, float scale, float slope, int key, int p) {
  if (plain_scores()) return s;
  s *= scale;
  if (cfg.soft_cap != 0) s = cfg.soft_cap * tanh_of(s * (1 / (cfg.soft_cap != 0 ? cfg.soft_cap : 1)));
  if (cfg.alibi != kAlibiNone) {
    const float distance = (float)(position_of(key) - p);
    if (cfg.alibi == kAlibiLinear) s += slope * distance;
    if (cfg.alibi == kAlibiSqrt && distance < 0) s -= slope * sqrt_of(-distance);
    if (cfg.alibi == kAlibiSymmetric) s -= slope * (distance < 0 ? -distance : distance);
  }
  return s * kLog2e;
}

// What the rows of a lane see.
struct Sight {
  Keys keys[kSeenRows], all;  // all: that every row sees
  int position[kSeenRows];
  float slope[kSeenRows];
};
AA_FN Sight sight_of(const AttendArgs& a, const BatchView& batch, const Unit& u) {
  Sight sight;
  sight.all = {0, kForever};
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    const int row = seen_row_of(i), token = row / tile.heads, head = row % tile.heads;
    const bool used = token < u.tokens && head < u.heads;
    sight.position[i] = u.position + token;
    sight.keys[i] = {0, kForever};  // rows past the unit's see zeros and are not written
    if (used) sight.keys[i] = visible(batch, u, sight.position[i]);
    sight.all = {most(sight.all.begin, sight.keys[i].begin), least(sight.all.end, sight.keys[i].end)};
    sight.slope[i] = used && cfg.alibi != kAlibiNone ? a.slopes[u.first_head + head] : 0;
  }
  return sight;
}

// Running state of the rows that a lane holds: O, m, l, and by how much O is to shrink. `maximum` is one that was: it is taken up
// only where scores have outgrown it by 2^kSlack, so that accumulators are scaled now and then; their sums have the room.
constexpr static float kSlack = 8;
struct State {
  Accumulator o;
  QueryOperands q;
  float maximum[kSeenRows], sum[kSeenRows], shrink[kSeenRows];
};

// The step of the online softmax: scores become P = exp(S - m); m and l follow.
AA_FN void take_scores(const Tiles& tiles, SeenScores& s, float factor, State& state) {
  float tops[kSeenRows];
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    tops[i] = state.maximum[i];
    AA_UNROLL
    for (int j = 0; j < kLaneSeen; ++j) tops[i] = larger(tops[i], s.at[i][j]);
  }
  share_tops(tiles, tops);
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    const bool stands = tops[i] * factor <= state.maximum[i] * factor + kSlack;
    const float top = stands ? state.maximum[i] : tops[i];
    const float base = top == -kInfinity ? 0 : top * factor;  // exp2(-inf - 0) is 0: rows that have seen nothing stay empty
    state.shrink[i] = exp2_of(state.maximum[i] * factor - base);
    float sum = 0;
    AA_UNROLL
    for (int j = 0; j < kLaneSeen; ++j) {
      s.at[i][j] = exp2_of(s.at[i][j] * factor - (base - kLift));
      sum += s.at[i][j];
    }
    state.maximum[i] = top;
    state.sum[i] = state.sum[i] * state.shrink[i] + sum;
  }
}

AA_FN void shrink_values(const Tiles& tiles, State& state) {
  float by[kLaneRows];
  bool stands = true;  // most tiles
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    by[i] = shrink_of(tiles, state.shrink, i);
    stands = stands && by[i] == 1;
  }
  AA_UNROLL
  for (int i = 0; !stands && i < kLaneRows; ++i) AA_UNROLL
  for (int c = 0; c < lane_sums(); ++c) state.o.at[i][c] *= by[i];
}

// O = softmax(Q K^T) V over the unit's keys, a tile a step. Where products are late (kLate), P V of a tile is made while the next
// one's scores are.
AA_FN void attend_keys(const AttendArgs& a, const BatchView& batch, const Unit& u, const Tiles& tiles, State& state) {
  const float scale = a.softmax_scale * kScoreFactor * call_scale(a.k_scales, a.scale_stride, u.kv_head);
  const float factor = plain_scores() ? scale * kLog2e : 1;
  const Sight sight = sight_of(a, batch, u);
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    state.maximum[i] = -kInfinity;
    state.shrink[i] = 1;
  }
  const int steps = (u.last_key - u.first_key + tile.keys - 1) / tile.keys;
  for (int s = 0; s <= kAhead; ++s) {
    const int first = u.first_key + s * tile.keys;
    post_rows(a, tiles, s, first, find_rows(batch, u, first));
  }
  barrier();
  for (int s = 0; s < kAhead; ++s) {
    if (s < steps) tiles.load_keys(s, a.k, a.v, u.kv_head, u.column);
    commit_loads();
  }
  prepare_query(tiles);
  SeenScores s;
  for (int step = 0; step < steps; ++step) {
    const int first = u.first_key + step * tile.keys, next = step + kAhead, first_ahead = u.first_key + (next + 1) * tile.keys;
    if (tile.stages > 1 && !kFed) {
      wait_loads(kPending);
      barrier();
    }
    if (next < steps) tiles.load_keys(next % tile.stages, a.k, a.v, u.kv_head, u.column);
    commit_loads();
    if (tile.stages == 1) {
      wait_loads(0);
      barrier();
    }
    const RowBlocks ahead = find_rows(batch, u, first_ahead);
    if (step == 0) keep_query(tiles, state.q);
    Scores own;
    const bool adds = kLate && (kLateAlways || step > 0);
    if (adds) shrink_values(tiles, state);
    dot_qk(tiles, step % tile.stages, state.q, own);  // S = Q K^T
    if (adds) dot_pv(tiles, most(step - 1, 0) % tile.stages, u.column, s, state.o);
    share_scores(tiles, own, s);
    const bool masked = first < sight.all.begin || first + tile.keys > sight.all.end;
    AA_UNROLL
    for (int i = 0; i < kSeenRows; ++i) AA_UNROLL
    for (int j = 0; j < kLaneSeen; ++j) {
      const int key = first + seen_key_of(j);
      s.at[i][j] = biased(s.at[i][j], scale, sight.slope[i], key, sight.position[i]);
      if (masked && (key < sight.keys[i].begin || key >= sight.keys[i].end)) s.at[i][j] = -kInfinity;
    }
    take_scores(tiles, s, factor, state);
    if (kLate) share_weights(tiles, s, state.shrink, state.o);
    hide_values(tiles, step % tile.stages, u.key_begin - first, u.last_key - first);
    if (!kLate) {  // O = O shrink + P V
      shrink_values(tiles, state);
      dot_pv(tiles, step % tile.stages, u.column, s, state.o);
    }
    if (tile.stages == 1) barrier();
    post_rows(a, tiles, (next + 1) % tile.stages, first_ahead, ahead);
    if (tile.stages == 1) barrier();
  }
  wait_loads(0);
  if (kLate && steps > 0) {
    barrier();
    shrink_values(tiles, state);
    dot_pv(tiles, (steps - 1) % tile.stages, u.column, s, state.o);
  }
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    state.maximum[i] = state.maximum[i] * factor - kLift;
    state.sum[i] = row_sum(state.sum[i]);
    if (state.sum[i] != state.sum[i]) state.maximum[i] = kInfinity;  // NaN outlives every part that it meets
  }
  share_ends(tiles, state.maximum, state.sum, state.o);
  if (cfg.rows == kRowsInt4Scaled) rotate_back(state.o);
}

// What a row's output is multiplied by, and its natural log-sum-exp; the sink counts in both.
struct RowEnd {
  float scale, lse;
};
AA_FN RowEnd end_row(const AttendArgs& a, int head, float maximum, float sum) {
  RowEnd end;
  float shrink = 1;
  if (cfg.sinks) {
    const float sink = a.sinks[head] * kLog2e, top = larger(maximum, sink);
    shrink = maximum == -kInfinity ? 0 : exp2_of(maximum - top);
    sum = (shrink == 0 ? 0 : sum * shrink) + exp2_of(sink - top);
    maximum = top;
  }
  const bool empty = maximum == -kInfinity;
  end.scale = empty ? 0 : shrink / sum * call_scale(a.v_scales, a.scale_stride, head / cfg.group);
  if (cfg.out_kind == kRowsE4M3) end.scale /= *a.out_scale;
  end.lse = empty ? -kInfinity : (maximum + log2_of(sum)) * kLn2;
  return end;
}

AA_FN void write_lse(const AttendArgs& a, int64_t row, int head, float lse) {
  if (a.lse.data) *a.lse.at(row, head) = lse * (float)a.lse.factor;
}

// Where warps or programs have shared the keys of a row: what a piece of them gives: maximum, sum, from the fifth float on the
// columns (H200, 1 x 2048: 10.8 us, with the two at the end 11.3). Parts of programs are in device memory.
AA_FN float* part_row(float* parts, int64_t row) { return parts + row * (tile.columns + 4); }
AA_FN void put_row(float* row, const State& state, int i, float maximum, float sum) {
  AA_UNROLL
  for (int c = 0; c < lane_columns(); c += 2)
    store_two(row + 4 + column_of(c), state.o.at[i][slot_of(c)], state.o.at[i][slot_of(c + 1)]);
  if (first_lane_of_row()) store_two(row, maximum, sum);
}
// Four of its columns.
struct Joined {
  float maximum, sum, value[4];
};
AA_FN Joined piece_at(const float* row, int column) {
  Joined one = {row[0], row[1], {}};
  load_four(row + 4 + column, one.value);
  return one;
}
AA_FN void join(Joined& all, const Joined& one) {
  const float top = larger(all.maximum, one.maximum);
  const float shrink = all.maximum == -kInfinity ? 0 : exp2_of(all.maximum - top);
  const float weight = one.maximum == -kInfinity ? 0 : exp2_of(one.maximum - top);
  all.maximum = top;
  all.sum = all.sum * shrink + (weight == 0 ? 0 : weight * one.sum);
  for (int e = 0; e < 4; ++e) all.value[e] = all.value[e] * shrink + (weight == 0 ? 0 : weight * one.value[e]);
}

AA_FN void write_row(const AttendArgs& a, const Unit& u, int r, int column, const Joined& all) {
  const int64_t row = u.row + r / tile.heads;
  const int head = u.first_head + r % tile.heads;
  const RowEnd end = end_row(a, head, all.maximum, all.sum);
  store_quad(a.out, row, head, u.column + column, all.value, end.scale);
  if (column == 0 && u.column == 0) write_lse(a, row, head, end.lse);
}

// A lane's rows as they stand, where its warp has seen all keys of the piece.
AA_FN void finish_rows(const AttendArgs& a, const Unit& u, const Tiles& tiles, const State& state, float* part) {
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    const int r = row_of(i), token = r / tile.heads, head = u.first_head + r % tile.heads;
    if (token >= u.tokens || r % tile.heads >= u.heads) continue;
    const auto [maximum, sum] = end_of(tiles, state.maximum, state.sum, i);
    if (part) {
      put_row(part_row(part, r), state, i, maximum, sum);
      continue;
    }
    const RowEnd end = end_row(a, head, maximum, sum);
    AA_UNROLL
    for (int c = 0; c < lane_columns(); c += 2)
      store_pair(a.out, u.row + token, head, u.column + column_of(c), state.o.at[i][slot_of(c)] * end.scale,
                 state.o.at[i][slot_of(c + 1)] * end.scale);
    if (first_lane_of_row() && u.column == 0) write_lse(a, u.row + token, head, end.lse);
  }
}

// The same where warps have shared the keys: their states meet in shared memory.
AA_FN void join_warps(const AttendArgs& a, const Unit& u, const Tiles& tiles, const State& state, float* part) {
  float* staged = tiles.staged();
  const int pitch = tile.columns + 8;
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i)
    put_row(staged + (warp_n() * tile.rows + row_of(i)) * pitch, state, i, state.maximum[i], state.sum[i]);
  barrier();
  const int quads = tile.columns / 4, rows = least(u.tokens * tile.heads, tile.rows);
  for (int i = thread(); i < rows * quads; i += kThreads) {
    const int r = i / quads, c = i % quads * 4;
    if (r % tile.heads >= u.heads) continue;
    Joined all = {-kInfinity, 0, {}};
    AA_UNROLL
    for (int n = 0; n < tile.warps_n; ++n) join(all, piece_at(staged + (n * tile.rows + r) * pitch, c));
    if (!part) {
      write_row(a, u, r, c, all);
      continue;
    }
    float* row = part_row(part, r);
    if (c == 0) store_two(row, all.maximum, all.sum);
    store_two(row + 4 + c, all.value[0], all.value[1]);
    store_two(row + 6 + c, all.value[2], all.value[3]);
  }
}

AA_FN void finish(const AttendArgs& a, const Unit& u, const Tiles& tiles, const State& state, float* part) {
  barrier();  // nobody reads keys any more: their memory takes the accumulators, or the next unit's keys
  if (tile.warps_n == 1 || tile.share || tile.groups) return finish_rows(a, u, tiles, state, part);
  join_warps(a, u, tiles, state, part);
  barrier();
}

// Tokens from index * Tile::tokens of a request on; nothing of their keys yet.
AA_FN Item make_item(const BatchView& batch, int req, int index, int keys, bool causal) {
  const int first = index * tile.tokens, tokens = query_len(batch, req);
  Item item = {};
  item.req = req;
  item.tokens = least(tile.tokens, tokens - first);
  item.row = batch.query_start_loc[req] + first;
  item.position = keys - tokens + first;
  item.keys = keys;
  item.causal = causal;
  return item;
}

// Where an item's tiles begin: flat rows are copied by eights.
AA_FN int first_tile_of(const Item& item) { return kFlat ? item.key_begin - item.key_begin % 8 : item.key_begin; }

// A head unit of an item; not yet its keys.
AA_FN Unit unit_of(const Item& item, int head_unit) {
  const int columns = (cfg.head_size_v + tile.columns - 1) / tile.columns, pieces = (cfg.group + tile.heads - 1) / tile.heads;
  const int head = head_unit / columns, first = head % pieces * tile.heads;
  Unit u = {};
  static_cast<Item&>(u) = item;
  u.kv_head = head / pieces;
  u.first_head = u.kv_head * cfg.group + first;
  u.heads = least(tile.heads, cfg.group - first);
  u.column = head_unit % columns * tile.columns;
  return u;
}

// Tiles [from, to) of an item's keys. The result goes to `part`; null: it is the rows' own.
AA_FN void attend_unit(const AttendArgs& a, const BatchView& batch, const Tiles& tiles, const Item& item, int head_unit,
                       int from, int to, float* part) {
  Unit u = unit_of(item, head_unit);
  u.first_key = first_tile_of(item) + from * tile.keys;
  u.last_key = least(item.key_end, first_tile_of(item) + to * tile.keys);
  if (feed_keys(a, batch, u, tiles)) return;
  load_query(a, u, tiles);
  State state = {};
  attend_keys(a, batch, u, tiles, state);
  finish(a, u, tiles, state, part);
}

// Rows past the last request: 0 and -inf.
AA_FN void clear_rows(const AttendArgs& a, const BatchView& batch, int program, int programs) {
  const int rows = batch.num_reqs ? batch.query_start_loc[batch.num_reqs] : 0;
  const int num_heads = cfg.group * cfg.num_kv_heads;
  const int quads = (cfg.head_size_v + 3) / 4;
  const float zero[4] = {0, 0, 0, 0};
  for (int row = rows + program; row < batch.num_tokens; row += programs) {
    for (int i = thread(); i < num_heads * quads; i += num_threads()) {
      store_quad(a.out, row, i / quads, i % quads * 4, zero, 1);
      if (i % quads == 0) write_lse(a, row, i / quads, -kInfinity);
    }
  }
}

// What a team does of an item at once, counted over the item's heads; number `round` of a team where they are dealt whole.
AA_FN int heads_of(const Lane& lane) { return tile.head_units / lane.team; }
AA_FN int64_t dealt(const Lane& lane, int team, int round) {
  return (int64_t)round * lane.teams + (round % 2 == 0 ? team : lane.teams - 1 - team);
}

AA_FN bool is_before(const Place& a, const Place& b) {
  return a.item != b.item ? a.item < b.item : a.head != b.head ? a.head < b.head : a.tile < b.tile;
}
AA_FN void next_unit(Place& place, int heads) {
  place.tile = 0;
  if (++place.head < heads) return;
  place.head = 0;
  ++place.item;
}

// A program of a fixed launch: its head of its team's share of the list, whatever the lengths of this replay are.
AA_FN void attend(const AttendArgs& a, const Tiles& tiles, int program) {
  let_next_launch();
  const BatchView batch = *a.kept;
  const int team = program / a.lane.team, heads = heads_of(a.lane);
  Place at = a.lane.places[team];
  const Place end = a.lane.places[team + 1];
  const bool dealing = at.tile == kWhole;
  bool more = dealing ? dealt(a.lane, team, 0) < at.last : is_before(at, end);
  for (int round = 0; more; ++round) {
    const Item item = round == 0 ? at.first : a.lane.items[at.item];
    int from = 0, to = item.tiles, head = at.head;
    float* part = nullptr;
    if (dealing) {
      head = (int)(dealt(a.lane, team, round) % heads);
      const int64_t next = dealt(a.lane, team, round + 1);
      more = next < at.last;
      if (more) at.item = a.lane.order[next / heads];
    } else {
      from = at.tile;
      if (at.item == end.item && at.head == end.head) to = end.tile;
      if (from > 0 || to < item.tiles) part = part_row(a.parts, (int64_t)(2 * program + (from == 0)) * tile.rows);
      next_unit(at, heads);
      more = is_before(at, end);
    }
    attend_unit(a, batch, tiles, item, head * a.lane.team + program % a.lane.team, from, to, part);
  }
  if (tile.min_query == 0) clear_rows(a, batch, program, a.lane.teams * a.lane.team);
}

// The same without a list: program -> (request, block of rows, head). For calls that carry their own offsets.
AA_FN void attend_direct(const AttendArgs& a, const Tiles& tiles, int program) {
  const BatchView& batch = a.batch;
  if (program == a.blocks_per_req * batch.num_reqs * tile.head_units) return clear_rows(a, batch, 0, 1);
  const int head_unit = program % tile.head_units, block = program / tile.head_units % a.blocks_per_req;
  const int req = program / tile.head_units / a.blocks_per_req;
  const int keys = batch.key_start_loc[req + 1] - batch.key_start_loc[req];
  Item item = make_item(batch, req, block, keys, a.causal != 0);
  item.key_end = a.causal ? most(0, least(keys, item.position + item.tokens)) : keys;
  item.tiles = (item.key_end + tile.keys - 1) / tile.keys;
  if (item.tokens > 0) attend_unit(a, batch, tiles, item, head_unit, 0, item.tiles, nullptr);
}

// Joins the pieces of the unit that program `program` goes on with: the merge's programs of all that do so share its columns by
// fours, and each program's threads the pieces.
AA_FN void merge_parts(const AttendArgs& a, int program, int share, int shares) {
  const Place place = a.lane.places[program / a.lane.team];
  // The merge must not end before attend does, whoever has nothing to do.
  if (place.tile <= 0) return program + share == 0 ? wait_for_previous() : void();
  const int member = program % a.lane.team, team = program / a.lane.team;
  const Unit u = unit_of(place.first, place.head * a.lane.team + member);
  const int quads = tile.columns / 4, work = least(u.tokens * tile.heads, tile.rows) * quads;
  const int count = place.last - place.begun + 1, blocks = (count - 1) * shares;
  int groups = 1;  // of threads, that take every so many pieces: as many as leave one round of work
  while (2 * groups <= count && 8 * groups <= kMergeThreads && blocks * kMergeThreads >= 2 * groups * work) groups *= 2;
  const int lanes = kMergeThreads / groups, group = thread() / lanes;
  alignas(16) AA_SHARED float ends[kMergeThreads][2], values[kMergeThreads][4];
  wait_for_previous();
  for (int first = ((team - place.begun - 1) * shares + share) * lanes; first < work; first += blocks * lanes) {
    const int i = first + thread() % lanes, r = i / quads, c = i % quads * 4;
    const int pieces = i < work && r % tile.heads < u.heads ? count : 0;
    Joined all = {-kInfinity, 0, {}};
    AA_UNROLL_FOUR
    for (int p = group; p < pieces; p += groups) {  // the first piece stands in its program's second place
      const int64_t at = 2 * ((place.begun + p) * a.lane.team + member) + (p == 0);
      join(all, piece_at(part_row(a.parts, at * tile.rows + r), c));
    }
    if (groups > 1) {  // within a row of 32 threads, then over those
      for (int mask = lanes; mask < 32; mask *= 2) {
        Joined other = {from_lane_xor(all.maximum, mask), from_lane_xor(all.sum, mask), {}};
        for (int e = 0; e < 4; ++e) other.value[e] = from_lane_xor(all.value[e], mask);
        join(all, other);
      }
      store_two(ends[thread()], all.maximum, all.sum);
      for (int e = 0; e < 4; ++e) values[thread()][e] = all.value[e];
      barrier();
      const int stride = most(lanes, 32);
      for (int t = thread() + stride; group == 0 && t < kMergeThreads; t += stride) {
        Joined one = {ends[t][0], ends[t][1], {}};
        load_four(values[t], one.value);
        join(all, one);
      }
      barrier();
    }
    if (pieces > 0 && group == 0) write_row(a, u, r, c, all);
  }
}
