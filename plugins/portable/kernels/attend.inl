// SPDX-License-Identifier: Apache-2.0
// Attention over tiles of keys, the online softmax in between (arXiv:2205.14135; split over keys as in arXiv:2311.01282).
// The words of a vendor (AA_FN, thread, barrier, tiles, dots, row_max ...) and `cfg`, `tile` come from the file around this one.

// A piece of work: one item's rows, heads of one kv head, columns of v, tiles [tile_begin, tile_end) of its keys.
struct Unit {
  int req, first_token, tokens;
  int key_begin, key_end;  // of the whole item
  int first_key, last_key;  // of this piece
  int kv_head, first_head, heads, column;
  int first_row;       // of the request in q
  int first_position;  // of token 0 of the request
  int keys;            // of the request
  bool causal;
};

AA_FN int round_up(int n, int step) { return (n + step - 1) / step * step; }
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

// Where a key's row lies; null outside the piece, or where the table names no block of the cache.
AA_FN const char* key_row(const AttendArgs& a, const BatchView& batch, const Unit& u, const Rows& rows, int key) {
  if (key >= u.last_key) return nullptr;
  const char* head = rows.data + (int64_t)u.kv_head * rows.head_bytes;
  if (cfg.block_size == 0) return head + ((int64_t)batch.key_start_loc[u.req] + key) * rows.token_bytes;
  const int block = batch.block_table[(int64_t)u.req * batch.table_stride + key / cfg.block_size];
  if ((uint64_t)(int64_t)block >= a.num_blocks) return nullptr;
  return head + (int64_t)block * a.block_bytes + (int64_t)(key % cfg.block_size) * rows.token_bytes;
}

AA_FN void load_keys(const AttendArgs& a, const BatchView& batch, const Unit& u, const Tiles& tiles, int stage, int first) {
  for (int i = thread(); i < tile.keys * kChunksK; i += num_threads()) {
    const int row = i / kChunksK, chunk = i % kChunksK;
    tiles.fill_k(stage, row, chunk, key_row(a, batch, u, a.k, first + row));
  }
  if (cfg.latent) return;
  for (int i = thread(); i < tile.keys * kChunksV; i += num_threads()) {
    const int row = i / kChunksV, chunk = i % kChunksV;
    tiles.fill_v(stage, row, chunk, u.column, key_row(a, batch, u, a.v, first + row));
  }
}

AA_FN void load_query(const AttendArgs& a, const Unit& u, const Tiles& tiles) {
  for (int i = thread(); i < tile.rows * kChunksK; i += num_threads()) {
    const int row = i / kChunksK, chunk = i % kChunksK;
    const int token = row / tile.heads, head = row % tile.heads;
    const char* from = nullptr;
    const int element = chunk * kChunk;
    if (token < u.tokens && head < u.heads && element < cfg.head_size) {
      const Rows& part = a.q[element >= cfg.q_split];
      from = part.data + (int64_t)(u.first_row + u.first_token + token) * part.token_bytes +
             (int64_t)(u.first_head + head) * part.head_bytes +
             (int64_t)(element >= cfg.q_split ? element - cfg.q_split : element) * kElementBytes;
    }
    tiles.fill_q(row, chunk, from);
  }
}

// Score in base 2, its bias included.
AA_FN float biased(float s, float scale, float slope, int key, int p) {
  if (cfg.soft_cap == 0 && cfg.alibi == kAlibiNone) return s * (scale * kLog2e);
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

// Running state of the rows that a lane holds.
struct State {
  Accumulator o;
  float maximum[kLaneRows], sum[kLaneRows];
};

AA_FN void attend_keys(const AttendArgs& a, const BatchView& batch, const Unit& u, const Tiles& tiles, State& state) {
  int begin[kLaneRows], end[kLaneRows], position[kLaneRows];
  float slope[kLaneRows];
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    const int row = row_of(i), token = row / tile.heads, head = row % tile.heads;
    const bool used = token < u.tokens && head < u.heads;
    begin[i] = end[i] = 0;
    slope[i] = 0;
    position[i] = u.first_position + u.first_token + token;
    if (used) visible(batch, u.req, u.keys, u.causal, position[i], &begin[i], &end[i]);
    if (used && cfg.alibi != kAlibiNone) slope[i] = a.slopes[u.first_head + head];
    state.maximum[i] = -kInfinity;
    state.sum[i] = 0;
    AA_UNROLL
    for (int c = 0; c < lane_columns(); ++c) state.o.at[i][c] = 0;
  }
  const int steps = (u.last_key - u.first_key + tile.keys - 1) / tile.keys;
  for (int s = 0; s < tile.stages - 1; ++s) {
    if (s < steps) load_keys(a, batch, u, tiles, s, u.first_key + s * tile.keys);
    commit_loads();
  }
  for (int step = 0; step < steps; ++step) {
    const int first = u.first_key + step * tile.keys, stage = step % tile.stages;
    const int next = step + tile.stages - 1;
    if (tile.stages == 1) {
      barrier();
      load_keys(a, batch, u, tiles, 0, first);
      commit_loads();
      wait_loads(0);
      barrier();
    } else {
      wait_loads(tile.stages - 2);
      barrier();
      if (next < steps) load_keys(a, batch, u, tiles, next % tile.stages, u.first_key + next * tile.keys);
      commit_loads();
    }
    Scores s;
    dot_qk(tiles, stage, s);
    AA_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      float top = state.maximum[i];
      AA_UNROLL
      for (int j = 0; j < kLaneKeys; ++j) {
        const int key = first + key_of(j);
        const float score = biased(s.at[i][j], a.softmax_scale, slope[i], key, position[i]);
        s.at[i][j] = key >= begin[i] && key < end[i] ? score : -kInfinity;
        top = larger(top, s.at[i][j]);
      }
      top = row_max(top);
      const float base = top == -kInfinity ? 0 : top;  // exp2(-inf - 0) is 0: rows that have seen nothing stay empty
      const float shrink = exp2_of(state.maximum[i] - base);
      float sum = 0;
      AA_UNROLL
      for (int j = 0; j < kLaneKeys; ++j) {
        s.at[i][j] = exp2_of(s.at[i][j] - base);
        sum += s.at[i][j];
      }
      state.maximum[i] = top;
      state.sum[i] = state.sum[i] * shrink + sum;
      AA_UNROLL
      for (int c = 0; c < lane_columns(); ++c) state.o.at[i][c] *= shrink;
    }
    dot_pv(tiles, stage, u.column, s, state.o);
  }
  wait_loads(0);
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) state.sum[i] = row_sum(state.sum[i]);
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
  end.scale = empty ? 0 : shrink / sum;
  end.lse = empty ? -kInfinity : (maximum + log2_of(sum)) * kLn2;
  return end;
}

AA_FN void write_lse(const AttendArgs& a, int64_t row, int head, float lse) {
  if (a.lse) a.lse[row * a.lse_token_stride + head * a.lse_head_stride] = lse * a.lse_factor;
}

// Joins the warps' states through shared memory and writes the rows, or the piece's state where the item is split.
AA_FN void finish(const AttendArgs& a, const Unit& u, const Tiles& tiles, const State& state, float* part) {
  barrier();  // nobody reads keys any more: their memory takes the accumulators
  float* staged = tiles.staged();
  const int pitch = tile.columns + 8;
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    float* row = staged + (warp_n() * tile.rows + row_of(i)) * pitch;
    AA_UNROLL
    for (int c = 0; c < lane_columns(); ++c) row[column_of(c)] = state.o.at[i][c];
    if (first_lane_of_row()) {
      tiles.maximum()[warp_n() * tile.rows + row_of(i)] = state.maximum[i];
      tiles.sum()[warp_n() * tile.rows + row_of(i)] = state.sum[i];
    }
  }
  barrier();
  const int quads = tile.columns / 4;
  for (int i = thread(); i < tile.rows * quads; i += num_threads()) {
    const int r = i / quads, c = i % quads * 4, token = r / tile.heads, head = r % tile.heads;
    if (token >= u.tokens || head >= u.heads) continue;
    float maximum = -kInfinity, sum = 0, value[4] = {0, 0, 0, 0};
    for (int n = 0; n < tile.warps_n; ++n) maximum = larger(maximum, tiles.maximum()[n * tile.rows + r]);
    for (int n = 0; n < tile.warps_n; ++n) {
      const float top = tiles.maximum()[n * tile.rows + r];
      if (top == -kInfinity) continue;
      const float weight = exp2_of(top - maximum);
      sum += tiles.sum()[n * tile.rows + r] * weight;
      for (int e = 0; e < 4; ++e) value[e] += weight * staged[(n * tile.rows + r) * pitch + c + e];
    }
    if (part) {
      float* row = part + (int64_t)r * (tile.columns + 2);
      for (int e = 0; e < 4; ++e) row[2 + c + e] = value[e];
      if (c == 0) row[0] = maximum;
      if (c == 0) row[1] = sum;
      continue;
    }
    const int64_t out_row = u.first_row + u.first_token + token;
    const RowEnd end = end_row(a, u.first_head + head, maximum, sum);
    store_quad(a.out, out_row, u.first_head + head, u.column + c, value, end.scale);
    if (c == 0 && u.column == 0) write_lse(a, out_row, u.first_head + head, end.lse);
  }
  barrier();  // before the next unit's keys land in the staged rows
}

AA_FN Unit unit_of(const BatchView& batch, const Item& item, int keys, int head_unit, int tile_begin, int tile_end) {
  Unit u;
  const int columns = (cfg.head_size_v + tile.columns - 1) / tile.columns, pieces = (cfg.group + tile.heads - 1) / tile.heads;
  const int head = head_unit / columns;
  u.req = item.req;
  u.first_token = item.first_token;
  u.tokens = item.tokens;
  u.key_begin = item.key_begin;
  u.key_end = item.key_end;
  u.first_key = item.key_begin + tile_begin * tile.keys;
  u.last_key = least(item.key_end, item.key_begin + tile_end * tile.keys);
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

AA_FN void attend_unit(const AttendArgs& a, const BatchView& batch, const Unit& u, const Tiles& tiles, float* part) {
  load_query(a, u, tiles);
  State state;
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

// A program of a fixed launch: its share of the list, whatever the lengths of this replay are.
AA_FN void attend(const AttendArgs& a, const Tiles& tiles, int program) {
  const BatchView& batch = *a.kept;
  Place at = a.lane.places[program];
  const Place end = a.lane.places[program + 1];
  while (at.item < end.item || (at.item == end.item && (at.head < end.head || (at.head == end.head && at.tile < end.tile)))) {
    const Item item = a.lane.items[at.item];
    const bool last = at.item == end.item && at.head == end.head;
    const int tile_end = last ? end.tile : item.tiles;
    const bool whole = at.tile == 0 && tile_end == item.tiles;
    const int number = 2 * program + (at.tile == 0);
    float* part = whole ? nullptr : a.parts + (int64_t)number * tile.rows * (tile.columns + 2);
    Unit u = unit_of(batch, item, batch.seq_lens[item.req], at.head, at.tile, tile_end);
    u.causal = is_causal(batch, item.req);
    attend_unit(a, batch, u, tiles, part);
    if (last) break;
    at.tile = 0;
    if (++at.head == tile.head_units) {
      at.head = 0;
      ++at.item;
    }
  }
  if (tile.min_query == 0) clear_rows(a, batch, program, tile.slots);
}

// The same without a list: program -> (request, block of rows, head). For calls that carry their own offsets.
AA_FN void attend_direct(const AttendArgs& a, const Tiles& tiles, int program) {
  const BatchView& batch = a.batch;
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
  if (item.tokens > 0) {
    const int tiles_in_all = (item.key_end + tile.keys - 1) / tile.keys;
    Unit u = unit_of(batch, item, keys, head_unit, 0, tiles_in_all);
    u.causal = a.causal != 0;
    attend_unit(a, batch, u, tiles, nullptr);
  }
}

// Joins the pieces of the unit that begins in program `s` and goes on in the next.
AA_FN void merge_parts(const AttendArgs& a, int s) {
  const BatchView& batch = *a.kept;
  const Place from = a.lane.places[s], next = a.lane.places[s + 1];
  if (next.tile == 0 || (from.item == next.item && from.head == next.head && from.tile > 0)) return;
  int last = s + 1;
  while (last < tile.slots) {
    const Place place = a.lane.places[last + 1];
    if (place.tile == 0 || place.item != next.item || place.head != next.head) break;
    ++last;
  }
  const Unit u = unit_of(batch, a.lane.items[next.item], 0, next.head, 0, 0);
  const int64_t size = (int64_t)tile.rows * (tile.columns + 2);
  const int quads = tile.columns / 4;
  for (int i = thread(); i < tile.rows * quads; i += num_threads()) {
    const int r = i / quads, c = i % quads * 4, token = r / tile.heads, head = r % tile.heads;
    if (token >= u.tokens || head >= u.heads) continue;
    const float* row = a.parts + (int64_t)r * (tile.columns + 2);
    float maximum = row[(2 * s + 1) * size];
    for (int p = s + 1; p <= last; ++p) maximum = larger(maximum, row[2 * p * size]);
    float sum = 0, value[4] = {0, 0, 0, 0};
    for (int p = s; p <= last; ++p) {
      const float* part = row + (p == s ? 2 * s + 1 : 2 * p) * size;
      if (part[0] == -kInfinity) continue;
      const float weight = exp2_of(part[0] - maximum);
      sum += weight * part[1];
      for (int e = 0; e < 4; ++e) value[e] += weight * part[2 + c + e];
    }
    const int64_t out_row = u.first_row + u.first_token + token;
    const RowEnd end = end_row(a, u.first_head + head, maximum, sum);
    store_quad(a.out, out_row, u.first_head + head, u.column + c, value, end.scale);
    if (c == 0 && u.column == 0) write_lse(a, out_row, u.first_head + head, end.lse);
  }
}
