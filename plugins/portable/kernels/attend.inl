// SPDX-License-Identifier: Apache-2.0
// Attention over tiles of keys, the online softmax in between (arXiv:2205.14135; split over keys as in arXiv:2311.01282).
// The words of a vendor (AA_FN, thread, barrier, tiles, dots, row_max ...) and `cfg`, `tile` come from the file around this one.

// A piece of work: one item's rows, heads of one kv head, columns of v, tiles [tile_begin, tile_end) of its keys.
struct Unit {
  int req, first_token, tokens;
  int key_begin, key_end;   // of the whole item
  int first_key, last_key;  // of this piece
  int kv_head, first_head, heads, column;
  int first_row;       // of the request in q
  int first_position;  // of token 0 of the request
  int keys;            // of the request
  bool causal;
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

AA_FN bool is_causal(const BatchView& batch, int req) {
  return cfg.causality == kPerRequest ? batch.causal[req] != 0 : cfg.causality == kCausal;
}

// Local keys [begin, end) that the row at position p sees; empty: 0, 0. Every mask is one interval, since causality, window
// and ranges all hold the own position.
AA_FN void visible(const BatchView& batch, int req, int keys, bool causal, int p, int* begin, int* end) {
  int first = 0, last = causal ? least(keys, p + 1) : keys;
  if (cfg.window_left >= 0) first = most(0, p - cfg.window_left);
  if (cfg.window_right >= 0 && !causal) last = least(keys, p + cfg.window_right + 1);
  if (cfg.mm_prefix) {
    for (int i = batch.mm_start[req]; i < batch.mm_start[req + 1]; ++i) {
      const int low = batch.mm_ranges[2 * i], high = batch.mm_ranges[2 * i + 1];
      if (p < low || p > high) continue;
      first = least(first, most(low, 0));
      last = most(last, least(high + 1, keys));
    }
  }
  const bool none = first >= last;
  *begin = none ? 0 : local_count(first);
  *end = none ? 0 : local_count(last);
}

// The blocks of this thread's rows of a tile of keys (ragged keys: their first row); -1 outside the piece. Asked for one tile
// ahead of the loads and made offsets at the step's end: no load and no product waits for the table.
struct RowBlocks {
  int at[kLookups];
};
AA_FN RowBlocks find_rows(const BatchView& batch, const Unit& u, int first) {
  RowBlocks found;
  AA_UNROLL
  for (int n = 0; n < kLookups; ++n) {
    const int row = thread() + n * kThreads, key = first + row, block_size = most(cfg.block_size, 1);
    found.at[n] = -1;
    if (row >= tile.keys || key >= u.last_key) continue;
    found.at[n] = cfg.block_size == 0 ? batch.key_start_loc[u.req]
                                      : batch.block_table[(int64_t)u.req * batch.table_stride + key / block_size];
  }
  return found;
}
// Where they lie in k and v; -1 where there is no row.
AA_FN void post_rows(const AttendArgs& a, const Tiles& tiles, int stage, int first, const RowBlocks& found) {
  AA_UNROLL
  for (int n = 0; n < kLookups; ++n) {
    const int row = thread() + n * kThreads, key = first + row, slot = cfg.block_size ? key % most(cfg.block_size, 1) : key;
    if (row >= tile.keys) continue;
    const bool known = cfg.block_size ? (uint64_t)(int64_t)found.at[n] < a.num_blocks : found.at[n] >= 0;
    const int64_t rows = cfg.block_size ? slot : (int64_t)found.at[n] + slot, block = cfg.block_size ? found.at[n] : 0;
    tiles.offsets(stage)[2 * row] = known ? block * a.block_bytes + rows * a.k.token_bytes : -1;
    tiles.offsets(stage)[2 * row + 1] = known ? block * a.block_bytes + rows * a.v.token_bytes : -1;
  }
}

// Lanes that are a power of two share a row, each taking every so many pieces of it: no division, and few addresses.
AA_FN void load_keys(const AttendArgs& a, const Unit& u, const Tiles& tiles, int stage) {
  if (kFlat) return tiles.fill_flat(stage, a.k, a.v, u.kv_head);
  const char* k = a.k.data + (int64_t)u.kv_head * a.k.head_bytes;
  int64_t at = -1;
  AA_UNROLL_COPIES
  for (int n = 0; n < (tile.keys + kRowsK - 1) / kRowsK * kPerLaneK; ++n) {
    const int row = thread() / kLanesK + n / kPerLaneK * kRowsK, piece = thread() % kLanesK + n % kPerLaneK * kLanesK;
    if (tile.keys % kRowsK != 0 && row >= tile.keys) break;
    if (n % kPerLaneK == 0) at = tiles.offsets(stage)[2 * row];
    tiles.fill_k(stage, row, piece, k, at);
  }
  const char* v = a.v.data + (int64_t)u.kv_head * a.v.head_bytes;
  AA_UNROLL
  for (int n = 0; kScaleBytes > 0 && n < kLookups; ++n) {
    const int row = thread() + n * kThreads;
    if (row < tile.keys) tiles.fill_scales(stage, row, k, v, tiles.offsets(stage)[2 * row], tiles.offsets(stage)[2 * row + 1]);
  }
  if (cfg.latent) return;
  AA_UNROLL_COPIES
  for (int n = 0; n < (tile.keys + kRowsV - 1) / kRowsV * kPerLaneV; ++n) {
    const int row = thread() / kLanesV + n / kPerLaneV * kRowsV, piece = thread() % kLanesV + n % kPerLaneV * kLanesV;
    if (tile.keys % kRowsV != 0 && row >= tile.keys) break;
    if (n % kPerLaneV == 0) at = tiles.offsets(stage)[2 * row + 1];
    tiles.fill_v(stage, row, piece, u.column, v, at);
  }
}

AA_FN void load_query(const AttendArgs& a, const Unit& u, const Tiles& tiles) {
  for (int n = 0; n < (tile.rows * kChunksQ + kThreads - 1) / kThreads; ++n) {
    const int i = thread() + n * kThreads;
    if ((tile.rows * kChunksQ) % kThreads != 0 && i >= tile.rows * kChunksQ) break;
    const int row = i / kChunksQ, chunk = i % kChunksQ;
    const int token = row / tile.heads, head = row % tile.heads;
    const int element = chunk * kChunk;
    const bool inside = token < u.tokens && head < u.heads && element < cfg.head_size;
    const Rows& part = a.q[element >= cfg.q_split];
    const int64_t offset = (int64_t)(u.first_row + u.first_token + token) * part.token_bytes +
                           (int64_t)(u.first_head + head) * part.head_bytes +
                           (int64_t)(element >= cfg.q_split ? element - cfg.q_split : element) * kElementBytes;
    tiles.fill_q(row, chunk, part.data, inside ? offset : -1);
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

// Running state of the rows that a lane holds. `maximum` is one that was: it is taken up only where scores have outgrown it by
// 2^kSlack, so that accumulators are scaled now and then; their sums have the room.
constexpr static float kSlack = 8;
struct State {
  Accumulator o;
  QueryOperands q;
  float maximum[kSeenRows], sum[kSeenRows];
};

AA_FN void shrink_values(const Tiles& tiles, const float (&shrink)[kSeenRows], Accumulator& o) {
  float by[kLaneRows];
  bool stands = true;  // most tiles
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    by[i] = shrink_of(tiles, shrink, i);
    stands = stands && by[i] == 1;
  }
  AA_UNROLL
  for (int i = 0; !stands && i < kLaneRows; ++i) AA_UNROLL
  for (int c = 0; c < lane_sums(); ++c) o.at[i][c] *= by[i];
}

AA_FN void attend_keys(const AttendArgs& a, const BatchView& batch, const Unit& u, const Tiles& tiles, State& state) {
  const float scale = a.softmax_scale * kScoreFactor * call_scale(a.k_scales, a.scale_stride, u.kv_head);
  const float factor = plain_scores() ? scale * kLog2e : 1;
  int begin[kSeenRows], end[kSeenRows], position[kSeenRows];
  float slope[kSeenRows], shrink[kSeenRows];
  int all_begin = 0, all_end = kForever;  // keys that every row of this lane sees
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    const int row = seen_row_of(i), token = row / tile.heads, head = row % tile.heads;
    const bool used = token < u.tokens && head < u.heads;
    begin[i] = 0;
    end[i] = kForever;  // rows past the unit's see zeros and are not written
    slope[i] = 0;
    position[i] = u.first_position + u.first_token + token;
    if (used) visible(batch, u.req, u.keys, u.causal, position[i], &begin[i], &end[i]);
    if (used && cfg.alibi != kAlibiNone) slope[i] = a.slopes[u.first_head + head];
    all_begin = most(all_begin, begin[i]);
    all_end = least(all_end, end[i]);
    state.maximum[i] = -kInfinity;
    shrink[i] = 1;
  }
  const int steps = (u.last_key - u.first_key + tile.keys - 1) / tile.keys;
  for (int s = 0; s <= kAhead; ++s) {
    const int first = u.first_key + s * tile.keys;
    post_rows(a, tiles, s, first, find_rows(batch, u, first));
  }
  barrier();
  for (int s = 0; s < kAhead; ++s) {
    if (s < steps) load_keys(a, u, tiles, s);
    commit_loads();
  }
  prepare_query(tiles);
  SeenScores s;
  for (int step = 0; step < steps; ++step) {
    const int first = u.first_key + step * tile.keys, next = step + kAhead;
    if (tile.stages > 1) {
      wait_loads(kPending);
      barrier();
    }
    if (next < steps) load_keys(a, u, tiles, next % tile.stages);
    commit_loads();
    if (tile.stages == 1) {
      wait_loads(0);
      barrier();
    }
    const int first_ahead = u.first_key + (next + 1) * tile.keys;
    const RowBlocks ahead = find_rows(batch, u, first_ahead);
    if (step == 0) keep_query(tiles, state.q);
    Scores own;
    const bool adds = kLate && (kLateAlways || step > 0);
    if (adds) shrink_values(tiles, shrink, state.o);
    dot_qk(tiles, step % tile.stages, state.q, own);
    if (adds) dot_pv(tiles, most(step - 1, 0) % tile.stages, u.column, s, state.o);
    share_scores(tiles, own, s);
    const bool masked = first < all_begin || first + tile.keys > all_end;
    AA_UNROLL
    for (int i = 0; i < kSeenRows; ++i) {
      AA_UNROLL
      for (int j = 0; j < kLaneSeen; ++j) {
        const int key = first + seen_key_of(j);
        s.at[i][j] = biased(s.at[i][j], scale, slope[i], key, position[i]);
        if (masked && (key < begin[i] || key >= end[i])) s.at[i][j] = -kInfinity;
      }
    }
    AA_UNROLL
    for (int i = 0; i < kSeenRows; ++i) {
      float top = state.maximum[i];
      AA_UNROLL
      for (int j = 0; j < kLaneSeen; ++j) top = larger(top, s.at[i][j]);
      top = row_max(top);
      if (top * factor <= state.maximum[i] * factor + kSlack) top = state.maximum[i];
      const float base = top == -kInfinity ? 0 : top * factor;  // exp2(-inf - 0) is 0: rows that have seen nothing stay empty
      shrink[i] = exp2_of(state.maximum[i] * factor - base);
      float sum = 0;
      AA_UNROLL
      for (int j = 0; j < kLaneSeen; ++j) {
        s.at[i][j] = exp2_of(s.at[i][j] * factor - (base - kLift));
        sum += s.at[i][j];
      }
      state.maximum[i] = top;
      state.sum[i] = state.sum[i] * shrink[i] + sum;
    }
    if (kLate) share_weights(tiles, s, shrink, state.o);
    hide_values(tiles, step % tile.stages, u.key_begin - first, u.last_key - first);
    if (!kLate) {
      shrink_values(tiles, shrink, state.o);
      dot_pv(tiles, step % tile.stages, u.column, s, state.o);
    }
    if (tile.stages == 1) barrier();
    post_rows(a, tiles, (next + 1) % tile.stages, first_ahead, ahead);
    if (tile.stages == 1) barrier();
  }
  wait_loads(0);
  if (kLate && steps > 0) {
    barrier();
    shrink_values(tiles, shrink, state.o);
    dot_pv(tiles, (steps - 1) % tile.stages, u.column, s, state.o);
  }
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    state.maximum[i] = state.maximum[i] * factor - kLift;
    state.sum[i] = row_sum(state.sum[i]);
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
  if (a.lse) a.lse[row * a.lse_token_stride + head * a.lse_head_stride] = lse * a.lse_factor;
}

// A lane's rows as they stand, where its warp has seen all keys of the piece.
AA_FN void finish_rows(const AttendArgs& a, const Unit& u, const Tiles& tiles, const State& state, float* part) {
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    const int r = row_of(i), token = r / tile.heads, head = r % tile.heads;
    if (token >= u.tokens || head >= u.heads) continue;
    const auto [maximum, sum] = end_of(tiles, state.maximum, state.sum, i);
    if (part) {
      float* row = part + (int64_t)r * (tile.columns + 4);
      AA_UNROLL
      for (int c = 0; c < lane_columns(); c += 2)
        store_two(row + 4 + column_of(c), state.o.at[i][slot_of(c)], state.o.at[i][slot_of(c + 1)]);
      if (first_lane_of_row()) store_two(row, maximum, sum);
      continue;
    }
    const int64_t row = u.first_row + u.first_token + token;
    const RowEnd end = end_row(a, u.first_head + head, maximum, sum);
    AA_UNROLL
    for (int c = 0; c < lane_columns(); c += 2)
      store_pair(a.out, row, u.first_head + head, u.column + column_of(c), state.o.at[i][slot_of(c)] * end.scale,
                 state.o.at[i][slot_of(c + 1)] * end.scale);
    if (first_lane_of_row() && u.column == 0) write_lse(a, row, u.first_head + head, end.lse);
  }
}

// What pieces of a row's keys give together: maximum, sum, four columns.
struct Joined {
  float maximum, sum, value[4];
};
AA_FN void join(Joined& all, float maximum, float sum, const float (&value)[4]) {
  const float before = all.maximum;
  all.maximum = larger(before, maximum);
  const float shrink = before == -kInfinity ? 0 : exp2_of(before - all.maximum);
  const float weight = maximum == -kInfinity ? 0 : exp2_of(maximum - all.maximum);
  all.sum = all.sum * shrink + (weight == 0 ? 0 : weight * sum);
  for (int e = 0; e < 4; ++e) all.value[e] = all.value[e] * shrink + (weight == 0 ? 0 : weight * value[e]);
}

AA_FN void write_row(const AttendArgs& a, const Unit& u, int r, int column, const Joined& all) {
  const int64_t row = u.first_row + u.first_token + r / tile.heads;
  const int head = u.first_head + r % tile.heads;
  const RowEnd end = end_row(a, head, all.maximum, all.sum);
  store_quad(a.out, row, head, u.column + column, all.value, end.scale);
  if (column == 0 && u.column == 0) write_lse(a, row, head, end.lse);
}

// The same where warps have shared the keys: their states meet in shared memory.
AA_FN void join_warps(const AttendArgs& a, const Unit& u, const Tiles& tiles, const State& state, float* part) {
  float* staged = tiles.staged();
  const int pitch = tile.columns + 8;
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    const int r = warp_n() * tile.rows + row_of(i);
    AA_UNROLL
    for (int c = 0; c < lane_columns(); c += 2)
      store_two(staged + r * pitch + column_of(c), state.o.at[i][slot_of(c)], state.o.at[i][slot_of(c + 1)]);
    if (!first_lane_of_row()) continue;
    tiles.maximum()[r] = state.maximum[i];
    tiles.sum()[r] = state.sum[i];
  }
  barrier();
  const int quads = tile.columns / 4, rows = least(u.tokens * tile.heads, tile.rows);
  for (int i = thread(); i < rows * quads; i += kThreads) {
    const int r = i / quads, c = i % quads * 4;
    if (r % tile.heads >= u.heads) continue;
    Joined all = {-kInfinity, 0, {0, 0, 0, 0}};
    AA_UNROLL
    for (int n = 0; n < tile.warps_n; ++n) {
      float value[4];
      load_four(staged + (n * tile.rows + r) * pitch + c, value);
      join(all, tiles.maximum()[n * tile.rows + r], tiles.sum()[n * tile.rows + r], value);
    }
    if (!part) {
      write_row(a, u, r, c, all);
      continue;
    }
    float* row = part + (int64_t)r * (tile.columns + 4);
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

// Where an item's tiles begin: flat rows are copied by eights.
AA_FN int first_tile_of(const Item& item) { return kFlat ? item.key_begin - item.key_begin % 8 : item.key_begin; }

AA_FN Unit unit_of(const BatchView& batch, const Item& item, int keys, int head_unit, int tile_begin, int tile_end) {
  Unit u;
  const int columns = (cfg.head_size_v + tile.columns - 1) / tile.columns, pieces = (cfg.group + tile.heads - 1) / tile.heads;
  const int head = head_unit / columns;
  u.req = item.req;
  u.first_token = item.first_token;
  u.tokens = item.tokens;
  u.key_begin = item.key_begin;
  u.key_end = item.key_end;
  u.first_key = first_tile_of(item) + tile_begin * tile.keys;
  u.last_key = least(item.key_end, first_tile_of(item) + tile_end * tile.keys);
  u.kv_head = head / pieces;
  u.first_head = u.kv_head * cfg.group + head % pieces * tile.heads;
  u.heads = least(tile.heads, cfg.group - head % pieces * tile.heads);
  u.column = head_unit % columns * tile.columns;
  u.first_row = batch.query_start_loc[item.req];
  u.keys = keys;
  u.causal = false;
  u.first_position = u.keys - (batch.query_start_loc[item.req + 1] - u.first_row);
  return u;
}

AA_FN void attend_unit(const AttendArgs& a, const BatchView& batch, const Tiles& tiles, const Item& item, int keys, bool causal,
                       int head_unit, int from, int to, float* part) {
  Unit u = unit_of(batch, item, keys, head_unit, from, to);
  u.causal = causal;
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

// A program of a fixed launch: its head of its team's share of the list, whatever the lengths of this replay are.
AA_FN void attend(const AttendArgs& a, const Tiles& tiles, int program) {
  let_next_launch();
  const BatchView batch = *a.kept;
  const int team = program / a.lane.team, heads = heads_of(a.lane);
  Place at = a.lane.places[team];
  const Place end = a.lane.places[team + 1];
  const bool dealing = at.tile == kWhole;
  int round = 0;
  bool more = dealing ? dealt(a.lane, team, 0) < at.last : is_before(at, end);
  while (more) {
    const Item item = round == 0 ? at.first : a.lane.items[at.item];
    int from = 0, to = item.tiles, head = at.head;
    float* part = nullptr;
    if (dealing) {
      head = (int)(dealt(a.lane, team, round) % heads);
      const int64_t next = dealt(a.lane, team, ++round);
      more = next < at.last;
      if (more) at.item = a.lane.order[next / heads];
    } else {
      ++round;
      from = at.tile;
      if (at.item == end.item && at.head == end.head) to = end.tile;
      if (from > 0 || to < item.tiles) part = a.parts + (int64_t)(2 * program + (from == 0)) * tile.rows * (tile.columns + 4);
      at.tile = 0;
      if (++at.head == heads) {
        at.head = 0;
        ++at.item;
      }
      more = is_before(at, end);
    }
    attend_unit(a, batch, tiles, item, batch.seq_lens[item.req], is_causal(batch, item.req),
                head * a.lane.team + program % a.lane.team, from, to, part);
  }
  if (tile.min_query == 0) clear_rows(a, batch, program, a.lane.teams * a.lane.team);
}

// The same without a list: program -> (request, block of rows, head). For calls that carry their own offsets.
AA_FN void attend_direct(const AttendArgs& a, const Tiles& tiles, int program) {
  const BatchView& batch = a.batch;
  if (program == a.blocks_per_req * batch.num_reqs * tile.head_units) return clear_rows(a, batch, 0, 1);
  const int head_unit = program % tile.head_units, block = program / tile.head_units % a.blocks_per_req;
  const int req = program / tile.head_units / a.blocks_per_req;
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req];
  const int keys = batch.key_start_loc[req + 1] - batch.key_start_loc[req];
  Item item;
  item.req = req;
  item.first_token = block * tile.tokens;
  item.tokens = least(tile.tokens, rows - item.first_token);
  item.key_begin = 0;
  item.key_end = a.causal ? most(0, least(keys, keys - rows + item.first_token + item.tokens)) : keys;
  item.tiles = (item.key_end + tile.keys - 1) / tile.keys;
  if (item.tokens > 0) attend_unit(a, batch, tiles, item, keys, a.causal != 0, head_unit, 0, item.tiles, nullptr);
}

// Joins the pieces of the unit that program `program` goes on with: the merge's programs of all that do so share its columns by
// fours, and each program's threads the pieces.
AA_FN void merge_parts(const AttendArgs& a, int program, int share, int shares) {
  const Place place = a.lane.places[program / a.lane.team];
  // The merge must not end before attend does, whoever has nothing to do.
  if (place.tile <= 0) return program + share == 0 ? wait_for_previous() : void();
  const BatchView batch = *a.kept;
  const int member = program % a.lane.team, team = program / a.lane.team;
  const Unit u = unit_of(batch, place.first, 0, place.head * a.lane.team + member, 0, 0);
  const int quads = tile.columns / 4, work = least(u.tokens * tile.heads, tile.rows) * quads;
  const int count = place.last - place.begun + 1, blocks = (count - 1) * shares;
  int groups = 1;  // of threads, that take every so many pieces: as many as leave one round of work
  while (2 * groups <= count && 8 * groups <= kMergeThreads && blocks * kMergeThreads >= 2 * groups * work) groups *= 2;
  const int lanes = kMergeThreads / groups, group = thread() / lanes;
  AA_SHARED float ends[kMergeThreads][2], values[kMergeThreads][4];
  wait_for_previous();
  for (int first = ((team - place.begun - 1) * shares + share) * lanes; first < work; first += blocks * lanes) {
    const int i = first + thread() % lanes, r = i / quads, c = i % quads * 4;
    const int pieces = i < work && r % tile.heads < u.heads ? count : 0;
    Joined all = {-kInfinity, 0, {0, 0, 0, 0}};
    AA_UNROLL_FOUR
    for (int p = group; p < pieces; p += groups) {  // the first piece stands in its program's second place
      const int64_t at = 2 * ((place.begun + p) * a.lane.team + member) + (p == 0);
      const float* part = a.parts + (at * tile.rows + r) * (tile.columns + 4);
      float value[4];
      load_four(part + 4 + c, value);
      join(all, part[0], part[1], value);
    }
    if (groups > 1) {  // within a row of 32 threads, then over those
      for (int mask = lanes; mask < 32; mask *= 2) {
        float other[4];
        for (int e = 0; e < 4; ++e) other[e] = from_lane_xor(all.value[e], mask);
        join(all, from_lane_xor(all.maximum, mask), from_lane_xor(all.sum, mask), other);
      }
      store_two(ends[thread()], all.maximum, all.sum);
      for (int e = 0; e < 4; ++e) values[thread()][e] = all.value[e];
      barrier();
      const int stride = most(lanes, 32);
      for (int t = thread() + stride; group == 0 && t < kMergeThreads; t += stride)
        join(all, ends[t][0], ends[t][1], values[t]);
      barrier();
    }
    if (pieces > 0 && group == 0) write_row(a, u, r, c, all);
  }
}
