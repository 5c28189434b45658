// SPDX-License-Identifier: Apache-2.0
// What CUDA and HIP have in common: a tile's elements over a warp's lanes, shared memory, scalar dots. Included after the
// vendor's own words. Four lanes share a row. Of 32 lanes (the layout of mma.m16n8, of scalar dots too) one has rows lane / 4 and
// + 8, columns 2 * (lane % 4) and + 1 of each 8; of 64 (that of mfma.h) row lane % 16, columns 4 * (lane / 16) to + 3 of each 16.
#pragma once

constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.69314718055994531f;
constexpr int kElementBytes = element_bytes(cfg);
constexpr int kChunk = 16 / kElementBytes;  // elements of a 16-byte chunk
constexpr int kHead = padded_to(cfg.head_size, row_step(cfg));
constexpr int kChunksQ = kHead / kChunk;
// A row of K or V in shared memory: its codes, padded with zeros, then its scale. Copied in pieces of the largest size that
// every row of the cache is aligned to; a tile's V is a piece of a row.
constexpr int kCodesK = code_bytes(cfg, kHead), kCodesV = tile.columns * code_bits(cfg.rows) / 8;
constexpr int kRowCodesK = code_bytes(cfg, cfg.head_size), kRowCodesV = cfg.head_size_v * code_bits(cfg.rows) / 8;
constexpr int kScaleBytes = has_row_scales(cfg.rows) ? 4 : 0;
constexpr int piece_of(int bytes) { return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 1; }
constexpr int kPieceK = piece_of(row_bytes(cfg, cfg.head_size)), kPieceV = piece_of(kRowCodesV + kScaleBytes);
constexpr int power_of_two_in(int n) { return n % 64 == 0 ? 32 : n & -n; }
constexpr int kPiecesK = kCodesK / kPieceK, kLanesK = cfg.rows == kRowsRecord ? 8 : power_of_two_in(kPiecesK);
constexpr int kPerLaneK = (kPiecesK + kLanesK - 1) / kLanesK;  // a record's 41 pieces are the only odd number
constexpr int kLanesV = power_of_two_in(kCodesV / kPieceV), kPerLaneV = kCodesV / kPieceV / kLanesV;
constexpr bool kFlat = is_flat(cfg, tile), kFlatFloats = kFlat && cfg.rows == kRowsE4M3Scaled;
constexpr bool kRecord = cfg.rows == kRowsRecord, kFed = is_fed(tile);
constexpr int kPitchQ = query_pitch(cfg, tile);
constexpr int kPitchK = kFlat ? row_bytes(cfg, cfg.head_size) : tile.groups ? 2 * kHead : tile_pitch(cfg, cfg.head_size);
constexpr int kPitchV = kFlat ? row_bytes(cfg, cfg.head_size_v) : tile_pitch(cfg, tile.columns);
// Codes that share a 16-bit word: what one matrix load gives a lane belongs to so many neighbouring columns.
constexpr int kPack = code_bits(cfg.rows) >= 16 ? 1 : 16 / code_bits(cfg.rows);
constexpr int kWarp = warp_lanes(cfg);
constexpr bool kWave = kWarp == 64;
// Of a product's result: a lane's neighbouring columns, and its rows.
constexpr int kNear = kWave ? 4 : 2, kTileRows = kWave ? 1 : 2;
// Neighbouring columns of the output that a lane has one result apart: of V a lane reads so many at once.
constexpr int kSpread = kFlat   ? 32 / code_bits(cfg.rows)
                        : kWave ? (tile.columns % 64 == 0   ? 4
                                   : tile.columns % 32 == 0 ? 2
                                                            : 1)
                        : kFed  ? 1
                                : kPack;
constexpr int log2_int(int n) { return n > 1 ? 1 + log2_int(n / 2) : 0; }
constexpr bool kRotated = cfg.rows == kRowsInt4Scaled;
constexpr int kHalfRotation =
    1 << log2_int(cfg.head_size) / 2;  // H H = head_size: divided off in two steps, for float16's sake
constexpr float kScoreFactor = kRotated ? (float)kHalfRotation / cfg.head_size : 1;
constexpr int kThreads = kWarp * tile.warps_m * tile.warps_n;
// Warps that share: their scores are parts of sums over `kSplits` warps; each lane then sees a piece of one row, and each warp
// multiplies all rows with columns of its own, a tile of keys later, so that sums and products of two tiles overlap.
constexpr int kSplits = tile.share ? tile.share : 1;
constexpr int kWarpKeys = tile.keys / (tile.warps_n / kSplits);
constexpr int kWarpColumns = tile.columns / (tile.share ? kThreads / 32 : tile.groups ? tile.warps_n : 1);
constexpr int kGroupWeights = tile.groups ? tile.keys / 4 : 1;       // of P, in pairs
constexpr int kSeenKeys = tile.share ? tile.keys : kWarpKeys;        // whose probabilities a warp multiplies with V
constexpr int kTilesM = tile.share ? tile.rows / 16 : tile.m_tiles;  // of its accumulator
constexpr int kRowSharers = tile.share ? kThreads / tile.rows : 4;   // lanes that see a row's scores
constexpr int kLaneRows = kFlat ? 1 : kTileRows * kTilesM, kSeenRows = tile.share ? 1 : kLaneRows;
constexpr int kLaneKeys = kWarpKeys / 4, kLaneSeen = tile.share ? tile.keys / kRowSharers : kLaneKeys;
constexpr int kLaneColumns = kWarpColumns / 4;
constexpr int kLaneSums = kLaneColumns + (kFlat && kRotated);    // the last: what zero points have added to each column
constexpr int kLateAlways = tile.groups && !cfg.latent ? 1 : 0;  // also before the first: products of zeros, so no branch
constexpr int kLate = tile.share || kLateAlways ? 1 : 0;
constexpr int kAhead = tile.stages - 1 - kLate;    // tiles of keys asked for before they are used
constexpr int kPending = tile.stages - 2 - kLate;  // of them not waited for at a tile's begin
constexpr int kQueryBytes = query_bytes(cfg, tile), kStageBytes = stage_bytes(cfg, tile), kBodyBytes = body_bytes(cfg, tile);
constexpr int kWeightsBytes = weights_bytes(cfg, tile);
constexpr int kMergeThreads = merge_threads(tile), kMergeShares = merge_shares(tile);
constexpr int kLookups = (tile.keys + kThreads - 1) / kThreads;
constexpr int kRowLanes = 32, kRowsK = kThreads / kLanesK, kRowsV = kThreads / kLanesV;

struct Scores {
  float at[kFlat ? 1 : kTileRows * tile.m_tiles][kLaneKeys];
};
struct SeenScores {
  float at[kSeenRows][kLaneSeen];
};
struct Accumulator {
  float at[kLaneRows][kLaneSums];
  unsigned weights[kGroupWeights];  // what products in flight read
};

AA_FN constexpr int lane_columns() { return kLaneColumns; }
AA_FN constexpr int lane_sums() { return kLaneSums; }
AA_FN int lane() { return thread() % 32; }
// Of a warp's lane: its row in a product's result, and which it is of the four that share the row.
AA_FN int own_row() { return kWave ? thread() % 16 : lane() / 4; }
AA_FN int sharer() { return kWave ? thread() / 16 % 4 : lane() % 4; }
AA_FN int warp_m() { return thread() / kWarp % tile.warps_m; }
AA_FN int warp_n() { return thread() / kWarp / tile.warps_m; }
AA_FN int row_of(int i) {
  return ((tile.share ? 0 : warp_m() * tile.m_tiles) + i / kTileRows) * 16 + i % kTileRows * 8 + own_row();
}
AA_FN int key_of(int j) {
  if (kFlat) return warp_n() * kWarpKeys + lane() % 4 * kLaneKeys + j;
  return warp_n() / kSplits * kWarpKeys + j / kNear * (4 * kNear) + sharer() * kNear + j % kNear;
}
AA_FN int seen_row_of(int i) { return tile.share ? thread() / kRowSharers : row_of(i); }
AA_FN int seen_key_of(int j) { return tile.share ? (j / 2 * kRowSharers + thread() % kRowSharers) * 2 + j % 2 : key_of(j); }
AA_FN int first_column() { return tile.share ? thread() / 32 * kWarpColumns : tile.groups ? warp_n() * kWarpColumns : 0; }
// Columns of a lane in ascending order, and the accumulator of each: kSpread * kNear neighbours of every four times as many.
AA_FN int column_of(int c) {
  constexpr int kTogether = kNear * kSpread;
  return first_column() + c / kTogether * (4 * kTogether) + sharer() * kTogether + c % kTogether;
}
AA_FN constexpr int slot_of(int c) {
  return c / (kNear * kSpread) * (kNear * kSpread) + c % kSpread * kNear + c / kSpread % kNear;
}
AA_FN unsigned word_at(const char* at) { return *(const unsigned*)at; }  // of a tile's row, or a record
AA_FN int row_lane() { return lane(); }
AA_FN int row_group() { return thread() / 32; }
AA_FN int row_groups() { return num_threads() / 32; }
AA_FN float largest_of_group(float x) {
  for (int mask = 16; mask; mask /= 2) x = larger(x, from_lane_xor(x, mask));
  return x;
}
AA_FN bool first_lane_of_row() { return sharer() == 0 && (tile.share ? thread() < 32 : !tile.groups || warp_n() == 0); }
constexpr int kNextSharer = kWave ? 16 : 1;  // lanes further
AA_FN float row_max(float x) {
  AA_UNROLL
  for (int mask = 1; mask < kRowSharers; mask *= 2) x = larger(x, from_lane_xor(x, mask * kNextSharer));
  return x;
}
AA_FN float row_sum(float x) {
  AA_UNROLL
  for (int mask = 1; mask < kRowSharers; mask *= 2) x += from_lane_xor(x, mask * kNextSharer);
  return x;
}

// Sum of the values of all threads before this one; *total of all.
AA_FN int scan(int value, int* total) {
  AA_SHARED int sums[33];
  int sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int other = from_lane_below(sum, step);
    if (lane() >= step) sum += other;
  }
  barrier();
  if (lane() == 31) sums[thread() / 32] = sum;
  barrier();
  if (thread() == 0) {
    int all = 0;
    for (int w = 0; w < num_threads() / 32; ++w) {
      const int own = sums[w];
      sums[w] = all;
      all += own;
    }
    sums[32] = all;
  }
  barrier();
  *total = sums[32];
  return sums[thread() / 32] + sum - value;
}

AA_FN float load_any(int kind, const char* row, int64_t i) {
  if (kind == kF32) return ((const float*)row)[i];
  const unsigned short bits = ((const unsigned short*)row)[i];
  return kind == kF16 ? float_of_f16(bits) : float_of_bf16(bits);
}
AA_FN void store_any(int kind, char* row, int64_t i, float value) {
  if (kind == kF32) ((float*)row)[i] = value;
  if (kind == kF16) ((unsigned short*)row)[i] = f16_of(value);
  if (kind == kBF16) ((unsigned short*)row)[i] = bf16_of(value);
}
AA_FN unsigned float8_of(float x, bool e5m2);
AA_FN void store_out(char* row, int64_t i, float value) {
  if (cfg.out_kind == kRowsE4M3)
    row[i] = (char)float8_of(value, false);
  else
    store_any(cfg.out_kind, row, i, value);
}

struct alignas(16) Chunk {
  unsigned word[4];
};
struct alignas(8) Two {
  float low, high;
};
struct alignas(8) Half4 {
  unsigned short at[4];
};

AA_FN void store_quad(const Rows& rows, int64_t row, int head, int column, const float (&value)[4], float scale) {
  char* to = rows.at(row, head);
  if (cfg.head_size_v % 4 != 0) {
    for (int e = 0; e < 4; ++e)
      if (column + e < cfg.head_size_v) store_out(to, column + e, value[e] * scale);
    return;
  }
  if (column >= cfg.head_size_v) return;
  if (cfg.out_kind == kF32) {
    Chunk chunk;
    for (int e = 0; e < 4; ++e) chunk.word[e] = bits_of(value[e] * scale);
    *(Chunk*)(to + column * 4) = chunk;
  } else if (cfg.out_kind == kRowsE4M3) {
    unsigned word = 0;
    for (int e = 0; e < 4; ++e) word |= float8_of(value[e] * scale, false) << 8 * e;
    *(unsigned*)(to + column) = word;
  } else {
    Half4 half;
    for (int e = 0; e < 4; ++e) half.at[e] = cfg.out_kind == kF16 ? f16_of(value[e] * scale) : bf16_of(value[e] * scale);
    *(Half4*)(to + column * 2) = half;
  }
}

AA_FN void load_four(const float* from, float (&to)[4]) {  // 16-byte aligned
  const Chunk chunk = *(const Chunk*)from;
  for (int e = 0; e < 4; ++e) to[e] = float_of_bits(chunk.word[e]);
}
AA_FN void store_two(float* to, float low, float high) { *(Two*)to = Two{low, high}; }
AA_FN void store_pair(const Rows& rows, int64_t row, int head, int column, float low, float high) {
  char* to = rows.at(row, head);
  if (cfg.head_size_v % 2 != 0 || cfg.out_kind == kF32) {
    if (column < cfg.head_size_v) store_out(to, column, low);
    if (column + 1 < cfg.head_size_v) store_out(to, column + 1, high);
  } else if (cfg.out_kind == kRowsE4M3) {
    if (column < cfg.head_size_v)
      *(unsigned short*)(to + column) = (unsigned short)(float8_of(low, false) | float8_of(high, false) << 8);
  } else if (column < cfg.head_size_v) {
    const unsigned pair =
        cfg.out_kind == kF16 ? f16_of(low) | (unsigned)f16_of(high) << 16 : bf16_of(low) | (unsigned)bf16_of(high) << 16;
    *(unsigned*)(to + column * 2) = pair;
  }
}

// Rows of `size` elements, one after the other, all threads together.
AA_FN void copy_rows(char* to, int64_t to_bytes, const char* from, int64_t from_bytes, int rows, int size) {
  if (size % kChunk == 0) {
    const int chunks = size / kChunk;
    for (int i = thread(); i < rows * chunks; i += num_threads())
      *(Chunk*)(to + i / chunks * to_bytes + i % chunks * 16) =
          *(const Chunk*)(from + i / chunks * from_bytes + i % chunks * 16);
    return;
  }
  for (int i = thread(); i < rows * size; i += num_threads())
    for (int b = 0; b < kElementBytes; ++b)
      to[i / size * to_bytes + i % size * kElementBytes + b] = from[i / size * from_bytes + i % size * kElementBytes + b];
}

#include "formats.inl"

// A program's shared memory: q [rows][kHead], `stages` times k [keys][kHead] and v [keys][columns]. Where warps share: sums
// [splits][rows][keys] in q's place, probabilities [rows][keys], a row's shrink, maximum and sum.
struct Tiles {
  char* base;
  SharedAt start;        // the same, as the vendor's copies and matrix loads address it
  bool feeds = false;    // this thread fetches keys for others (feed.h)
  mutable int turn = 0;  // tiles that it has fetched, or taken from those that do

  // Byte `at` of a row; groups.h says how those of warp groups lie.
  AA_FN static int byte_at(int rows, int pitch, int row, int at) {
    return tile.groups ? at / 128 * (rows * 128) + row * 128 + (at / 16 ^ row) % 8 * 16 + at % 16 : row * pitch + at;
  }
  AA_FN static int q_at(int row, int at = 0) { return byte_at(tile.rows, kPitchQ, row, at); }
  AA_FN static int k_at(int stage, int row, int at = 0) {
    return kQueryBytes + stage * kStageBytes + byte_at(tile.keys, kPitchK, row, at);
  }
  AA_FN static int v_at(int stage, int row, int at = 0) {
    return kQueryBytes + stage * kStageBytes + tile.keys * kPitchK + byte_at(tile.keys, kPitchV, row, at);
  }
  AA_FN float* sums(int split, int row) const { return (float*)base + (split * tile.rows + row) * score_pitch(tile); }
  AA_FN char* q(int row, int part = 0) const { return base + q_at(row + part * tile.rows); }
  AA_FN char* k(int stage, int row) const { return base + k_at(stage, row); }
  AA_FN char* v(int stage, int row) const { return base + v_at(stage, row); }
  AA_FN char* body() const { return base + kQueryBytes; }
  AA_FN float* staged() const { return (float*)body(); }
  AA_FN float* weights() const { return (float*)(body() + kBodyBytes); }
  AA_FN int64_t* offsets(int stage) const { return (int64_t*)(body() + kBodyBytes + kWeightsBytes) + stage * tile.keys * 2; }
  AA_FN float* maximum() const { return (float*)((char*)offsets(0) + offset_bytes(tile)); }
  AA_FN float* sum() const { return maximum() + (tile.share ? 1 : tile.warps_n) * tile.rows; }
  AA_FN float* shrink() const { return sum() + tile.rows; }

  // Keys and values whose places the offsets are. Lanes that are a power of two share a row, each taking every so many pieces
  // of it: no division, and few addresses.
  AA_FN void load_keys(int stage, const Rows& k, const Rows& v, int kv_head, int column) const {
    if (kFed) return;
    if (kFlat) return fill_flat(stage, k, v, kv_head);
    const char *k_of = k.at(0, kv_head), *v_of = v.at(0, kv_head);
    int64_t at = -1;
    AA_UNROLL_COPIES
    for (int n = 0; n < (tile.keys + kRowsK - 1) / kRowsK * kPerLaneK; ++n) {
      const int row = thread() / kLanesK + n / kPerLaneK * kRowsK, piece = thread() % kLanesK + n % kPerLaneK * kLanesK;
      if (tile.keys % kRowsK != 0 && row >= tile.keys) break;
      if (n % kPerLaneK == 0) at = offsets(stage)[2 * row];
      fill_k(stage, row, piece, k_of, at);
    }
    AA_UNROLL
    for (int n = 0; kScaleBytes > 0 && n < kLookups; ++n) {
      const int row = thread() + n * kThreads;
      if (row < tile.keys) fill_scales(stage, row, k_of, v_of, offsets(stage)[2 * row], offsets(stage)[2 * row + 1]);
    }
    if (cfg.latent) return;
    AA_UNROLL_COPIES
    for (int n = 0; n < (tile.keys + kRowsV - 1) / kRowsV * kPerLaneV; ++n) {
      const int row = thread() / kLanesV + n / kPerLaneV * kRowsV, piece = thread() % kLanesV + n % kPerLaneV * kLanesV;
      if (tile.keys % kRowsV != 0 && row >= tile.keys) break;
      if (n % kPerLaneV == 0) at = offsets(stage)[2 * row + 1];
      fill_v(stage, row, piece, column, v_of, at);
    }
  }

  // A piece of q; zeros where it is outside.
  AA_FN void fill_q(int row, int chunk, const char* from, bool inside) const {
    load_chunk<16>(start + q_at(row, chunk * 16), from, inside ? 0 : -1);
  }
  // A piece from base + offset; zeros where offset is negative.
  AA_FN void fill_k(int stage, int row, int piece, const char* base_of, int64_t offset) const {
    const int at = piece * kPieceK;
    if (kPiecesK % kLanesK != 0 && piece >= kPiecesK) return;
    const bool inside = kRowCodesK == kCodesK || at < kRowCodesK;
    load_chunk<kPieceK>(start + k_at(stage, row, at), base_of + at, inside ? offset : -1);
  }
  AA_FN void fill_v(int stage, int row, int piece, int column, const char* base_of, int64_t offset) const {
    const int at = piece * kPieceV, first = column * code_bits(cfg.rows) / 8 + at;
    const bool inside = kRowCodesV % kCodesV == 0 || first < kRowCodesV;
    if constexpr (kPieceV >= 4)
      load_chunk<kPieceV>(start + v_at(stage, row, at), base_of + first, inside ? offset : -1);
    else
      v(stage, row)[at] = inside && offset >= 0 ? base_of[offset + first] : 0;
  }
  // Flat rows, by eights: a whole number of 16-byte pieces where the block has a head's rows one after the other.
  AA_FN void fill_flat(int stage, const Rows& k, const Rows& v, int kv_head) const {
    if constexpr (kFlat) {
      fill_plane<kPitchK>(stage, 0, k_at(stage, 0), k, kv_head);
      fill_plane<kPitchV>(stage, 1, v_at(stage, 0), v, kv_head);
    }
  }
  template <int kBytes>
  AA_FN void fill_plane(int stage, int plane, int to, const Rows& rows, int kv_head) const {
    constexpr int kWarps = kThreads / 32, kPieces = kBytes / 2, kEights = tile.keys / 8 / kWarps;
    constexpr int kCopies = (kEights * kPieces + 31) / 32;
    const char* from = rows.data + (int64_t)kv_head * rows.head_bytes;
    const int64_t* at_rows = offsets(stage) + plane + thread() / 32 * kEights * 16;
    const SharedAt at = start + to + thread() / 32 * (kEights * 8 * kBytes);
    // The eight of a lane's piece. 32 pieces at a time reach over one end of an eight that has more.
    const auto eight_of = [](int n) {
      return kPieces < 32 ? (n * 32 + lane()) / kPieces : n * 32 / kPieces + (n * 32 % kPieces + lane() >= kPieces);
    };
    if (rows.token_bytes == kBytes) {
      int64_t offset[kCopies];  // all of them before the first copy: a copy behind a shared load costs three empty slots
      AA_UNROLL
      for (int n = 0; n < kCopies; ++n)
        offset[n] = (n + 1) * 32 <= kEights * kPieces || lane() < kEights * kPieces - n * 32 ? at_rows[eight_of(n) * 16] : -1;
      AA_UNROLL
      for (int n = 0; n < kCopies; ++n)
        if ((n + 1) * 32 <= kEights * kPieces || lane() < kEights * kPieces - n * 32)
          load_chunk<16>(at + (n * 512 + lane() * 16), from + (unsigned)(n * 512 + lane() * 16 - eight_of(n) * (8 * kBytes)),
                         offset[n]);
      return;
    }
    for (int row = 0; row < tile.keys / kWarps; ++row)
      for (int piece = lane() * 4; piece < kBytes; piece += 128)
        load_chunk<4>(at + row * kBytes + piece, from + piece, at_rows[row * 2]);
  }
  AA_FN void fill_scales(int stage, int row, const char* k_of, const char* v_of, int64_t k_offset, int64_t v_offset) const {
    load_chunk<4>(start + (k_at(stage, row) + kCodesK), k_of + kRowCodesK, k_offset);
    if constexpr (kPieceV >= 4)
      load_chunk<4>(start + (v_at(stage, row) + kCodesV), v_of + kRowCodesV, v_offset);
    else
      for (int b = 0; b < 4; ++b) v(stage, row)[kCodesV + b] = v_offset < 0 ? 0 : v_of[v_offset + kRowCodesV + b];
  }
};

// A row of q as its warp's lanes hold it, in the keys' rotation where they have one.
struct QueryRow {
  float at[kHead > kMaxRotated ? (kHead + 31) / 32 : kMaxRotated / 32];
};
AA_FN QueryRow load_query_row(const Tiles& tiles, int row) {
  QueryRow q = {};
  AA_UNROLL
  for (int i = 0; i * 32 < cfg.head_size; ++i) {
    const int e = i * 32 + lane();
    if (e < cfg.head_size) q.at[i] = load_any(cfg.kind, tiles.q(row), e);
    if (kRotated) q.at[i] = signed_by_rotation(q.at[i], e);
  }
  if (!kRotated) return q;
  hadamard(q.at, cfg.head_size);
  AA_UNROLL
  for (int i = 0; i * 32 < cfg.head_size; ++i) q.at[i] = i * 32 + lane() < cfg.head_size ? q.at[i] * (1.f / kHalfRotation) : 0;
  return q;
}
// In float32 a row a warp; kept as its rounded value and what that leaves.
AA_FN void rotate_query(const Tiles& tiles) {
  for (int row = thread() / 32; row < tile.rows; row += kThreads / 32) {
    const QueryRow q = load_query_row(tiles, row);
    AA_UNROLL
    for (int i = 0; i * 32 < kHead; ++i) {
      const int e = i * 32 + lane();
      store_any(cfg.kind, tiles.q(row), e, q.at[i]);
      if (query_parts(cfg) == 2) store_any(cfg.kind, tiles.q(row, 1), e, q.at[i] - load_any(cfg.kind, tiles.q(row), e));
    }
  }
}
// The output out of it. A lane's columns are neighbours up to 2 kSpread, then come four lanes, then the rest.
AA_FN void rotate_back(Accumulator& o) {
  constexpr int kNearest = 2 * kSpread;
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) {
    float(&y)[kLaneSums] = o.at[i];
    AA_UNROLL
    for (int c = 0; kLaneSums > kLaneColumns && c < kLaneColumns; ++c) y[c] -= y[kLaneSums - 1];
    AA_UNROLL
    for (int distance = 1; distance < cfg.head_size_v; distance *= 2) {
      const int step = distance < kNearest ? distance : distance / 4;
      AA_UNROLL
      for (int c = 0; c < kLaneColumns; ++c) {
        float& low = y[slot_of(c)];
        if (distance >= kNearest && distance < 4 * kNearest) {
          const float other = from_lane_xor(low, distance / kNearest);
          low = lane() & distance / kNearest ? other - low : low + other;
        } else if ((c & step) == 0 && c + step < kLaneColumns) {
          float& high = y[slot_of(c + step)];
          const float sum = low + high;
          high = low - high;
          low = sum;
        }
      }
    }
    AA_UNROLL
    for (int c = 0; c < kLaneColumns; ++c) {
      const int column = column_of(c);
      if (column < cfg.head_size_v) y[slot_of(c)] = signed_by_rotation(y[slot_of(c)], column) * (1.f / cfg.head_size_v);
    }
  }
}

// Codes of V outside a tile's keys [begin, end), which may be those of NaN, become zeros. A lane a key of its warp.
AA_FN void hide_values(const Tiles& tiles, int stage, int begin, int end) {
  if (!kFlatFloats || (begin <= 0 && end >= tile.keys)) return;
  const int key = warp_n() * kWarpKeys + lane();
  for (int at = 0; at < kRowCodesV && (key < begin || key >= end); at += 4) *(unsigned*)(tiles.v(stage, key) + at) = 0;
  warp_barrier();
}

AA_FN float query_element(const Tiles& tiles, int row, int i) {
  const float value = load_any(cfg.kind, tiles.q(row), i);
  return query_parts(cfg) == 2 ? value + load_any(cfg.kind, tiles.q(row, 1), i) : value;
}

// Scores as the softmax takes them: a lane's own, or the sums of what warps have of them.
AA_FN void share_scores(const Tiles& tiles, Scores& own, SeenScores& seen) {
  if (tile.share) barrier();
  wait_scores(tiles, own);
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) AA_UNROLL
  for (int j = 0; j < kLaneSeen; j += 2) {
    Two two = {0, 0};
    AA_UNROLL
    for (int n = 0; n < tile.share; ++n) {
      const Two part = *(const Two*)(tiles.sums(n, seen_row_of(i)) + seen_key_of(j));
      two.low += part.low;
      two.high += part.high;
    }
    seen.at[i][j] = tile.share ? two.low : own.at[i][j % kLaneKeys];
    seen.at[i][j + 1] = tile.share ? two.high : own.at[i][(j + 1) % kLaneKeys];
  }
}
// The largest of each row over the lanes that see it, and over the group that sees its other keys.
AA_FN void share_tops(const Tiles& tiles, float (&top)[kSeenRows]) {
  AA_UNROLL
  for (int i = 0; i < kSeenRows; ++i) {
    top[i] = row_max(top[i]);
    if (kFed && lane() % 4 == 0) tiles.maximum()[warp_n() * tile.rows + row_of(i)] = top[i];
  }
  if (kFed) barrier();
  AA_UNROLL
  for (int i = 0; kFed && i < kSeenRows; ++i) top[i] = larger(top[i], tiles.maximum()[(1 - warp_n()) * tile.rows + row_of(i)]);
}
// How much a row of the accumulator shrinks, and a row's state at the end: a lane's own, or that of the lanes that saw the row.
AA_FN float shrink_of(const Tiles& tiles, const float (&own)[kSeenRows], int i) {
  return tile.share ? tiles.shrink()[row_of(i)] : own[i % kSeenRows];
}
AA_FN void share_ends(const Tiles& tiles, const float (&maximum)[kSeenRows], const float (&sum)[kSeenRows], Accumulator& o) {
  settle(o);
  if (tile.share && thread() % kRowSharers == 0)
    tiles.maximum()[seen_row_of(0)] = maximum[0], tiles.sum()[seen_row_of(0)] = sum[0];
  AA_UNROLL
  for (int i = 0; kFed && i < kSeenRows; ++i)
    if (lane() % 4 == 0) tiles.sum()[warp_n() * tile.rows + row_of(i)] = sum[i];
}
AA_FN Two end_of(const Tiles& tiles, const float (&maximum)[kSeenRows], const float (&sum)[kSeenRows], int i) {
  if (tile.share) return {tiles.maximum()[row_of(i)], tiles.sum()[row_of(i)]};
  if (kFed) return {maximum[i % kSeenRows], tiles.sum()[row_of(i)] + tiles.sum()[tile.rows + row_of(i)]};
  return {maximum[i % kSeenRows], sum[i % kSeenRows]};
}

// S = Q K^T, elementwise: each lane sums its own elements.
AA_FN void scalar_qk(const Tiles& tiles, int stage, Scores& s) {
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) s.at[i][j] = 0;
  for (int d = 0; d < kHead; d += 4) {
    float q[kLaneRows][4];
    AA_UNROLL
    for (int i = 0; i < kLaneRows; ++i) AA_UNROLL
    for (int e = 0; e < 4; ++e) q[i][e] = query_element(tiles, row_of(i), d + e);
    AA_UNROLL
    for (int j = 0; j < kLaneKeys; ++j) {
      const char* k = tiles.k(stage, key_of(j));
      AA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float value = stored_value(k, kCodesK, d + e);
        AA_UNROLL
        for (int i = 0; i < kLaneRows; ++i) s.at[i][j] += q[i][e] * value;
      }
    }
  }
}

// O += P V likewise; P goes through shared memory, where the lanes of a row find each other's.
AA_FN void scalar_pv(const Tiles& tiles, int stage, int column, const SeenScores& p, Accumulator& o) {
  float* weights = tiles.weights();
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) weights[row_of(i) * tile.keys + key_of(j)] = p.at[i][j];
  warp_barrier();
  for (int n = 0; n < kWarpKeys; ++n) {
    const int key = warp_n() * kWarpKeys + n;
    const char* v = cfg.latent ? tiles.k(stage, key) : tiles.v(stage, key);
    const int first = cfg.latent ? column : 0;
    float weight[kLaneRows];
    AA_UNROLL
    for (int i = 0; i < kLaneRows; ++i) weight[i] = weights[row_of(i) * tile.keys + key];
    AA_UNROLL
    for (int c = 0; c < kLaneColumns; ++c) {
      const float value = stored_value(v, kCodesV, first + column_of(c));
      AA_UNROLL
      for (int i = 0; i < kLaneRows; ++i) o.at[i][slot_of(c)] += weight[i] * value;
    }
  }
  warp_barrier();
}
