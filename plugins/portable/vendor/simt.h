// SPDX-License-Identifier: Apache-2.0
// What CUDA and HIP have in common: a tile's elements over 32 lanes (the layout of mma.m16n8), shared memory, scalar dots.
// Included after the vendor's own words. Rows of a lane are lane / 4 and + 8, its columns 2 * (lane % 4) and + 1 of each 8.
#pragma once

constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.69314718055994531f;
constexpr int kElementBytes = element_bytes(cfg);
constexpr int kChunk = 16 / kElementBytes;  // elements of a 16-byte chunk
constexpr int kHead = padded_to(cfg.head_size, 16);
constexpr int kChunksK = kHead / kChunk, kChunksV = tile.columns / kChunk;
constexpr int kPitchK = pitch_bytes(cfg.head_size, kElementBytes), kPitchV = pitch_bytes(tile.columns, kElementBytes);
constexpr int kWarpKeys = tile.keys / tile.warps_n;
constexpr int kLaneRows = 2 * tile.m_tiles, kLaneKeys = kWarpKeys / 4, kLaneColumns = tile.columns / 4;
constexpr int kQueryBytes = query_bytes(cfg, tile), kStageBytes = stage_bytes(cfg, tile), kBodyBytes = body_bytes(cfg, tile);
constexpr int kWeightsBytes = weights_bytes(cfg, tile);
constexpr int kThreads = 32 * tile.warps_m * tile.warps_n;
constexpr int kMergeThreads = 128, kMergeShares = merge_shares(tile);
constexpr int kLookups = (tile.keys + kThreads - 1) / kThreads;

struct Scores {
  float at[kLaneRows][kLaneKeys];
};
struct Accumulator {
  float at[kLaneRows][kLaneColumns];
};

AA_FN constexpr int lane_columns() { return kLaneColumns; }
AA_FN int lane() { return thread() % 32; }
AA_FN int warp_m() { return thread() / 32 % tile.warps_m; }
AA_FN int warp_n() { return thread() / 32 / tile.warps_m; }
AA_FN int row_of(int i) { return (warp_m() * tile.m_tiles + i / 2) * 16 + i % 2 * 8 + lane() / 4; }
AA_FN int key_of(int j) { return warp_n() * kWarpKeys + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
AA_FN int column_of(int c) { return c / 2 * 8 + lane() % 4 * 2 + c % 2; }
AA_FN bool first_lane_of_row() { return lane() % 4 == 0; }
AA_FN float row_max(float x) {
  x = larger(x, from_lane_xor(x, 1));
  return larger(x, from_lane_xor(x, 2));
}
AA_FN float row_sum(float x) {
  x += from_lane_xor(x, 1);
  return x + from_lane_xor(x, 2);
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

struct alignas(16) Chunk {
  unsigned word[4];
};
struct alignas(8) Half4 {
  unsigned short at[4];
};

AA_FN void store_quad(const Rows& rows, int64_t row, int head, int column, const float (&value)[4], float scale) {
  char* to = rows.data + row * rows.token_bytes + head * rows.head_bytes;
  if (cfg.head_size_v % 4 != 0) {
    for (int e = 0; e < 4; ++e)
      if (column + e < cfg.head_size_v) store_any(cfg.out_kind, to, column + e, value[e] * scale);
    return;
  }
  if (column >= cfg.head_size_v) return;
  if (cfg.out_kind == kF32) {
    Chunk chunk;
    for (int e = 0; e < 4; ++e) chunk.word[e] = bits_of(value[e] * scale);
    *(Chunk*)(to + column * 4) = chunk;
  } else {
    Half4 half;
    for (int e = 0; e < 4; ++e) half.at[e] = cfg.out_kind == kF16 ? f16_of(value[e] * scale) : bf16_of(value[e] * scale);
    *(Half4*)(to + column * 2) = half;
  }
}

AA_FN void store_two(float* to, float low, float high) {
  to[0] = low;
  to[1] = high;
}
AA_FN void store_pair(const Rows& rows, int64_t row, int head, int column, float low, float high) {
  char* to = rows.data + row * rows.token_bytes + head * rows.head_bytes;
  if (cfg.head_size_v % 2 != 0 || cfg.out_kind == kF32) {
    if (column < cfg.head_size_v) store_any(cfg.out_kind, to, column, low);
    if (column + 1 < cfg.head_size_v) store_any(cfg.out_kind, to, column + 1, high);
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

// A program's shared memory: q [rows][kHead], `stages` times k [keys][kHead] and v [keys][columns].
struct Tiles {
  char* base;
  SharedAt start;  // the same, as the vendor's copies and matrix loads address it

  AA_FN static int q_at(int row) { return row * kPitchK; }
  AA_FN static int k_at(int stage, int row) { return kQueryBytes + stage * kStageBytes + row * kPitchK; }
  AA_FN static int v_at(int stage, int row) { return kQueryBytes + stage * kStageBytes + tile.keys * kPitchK + row * kPitchV; }
  AA_FN char* q(int row) const { return base + q_at(row); }
  AA_FN char* k(int stage, int row) const { return base + k_at(stage, row); }
  AA_FN char* v(int stage, int row) const { return base + v_at(stage, row); }
  AA_FN char* body() const { return base + kQueryBytes; }
  AA_FN float* staged() const { return (float*)body(); }
  AA_FN float* weights() const { return (float*)(body() + kBodyBytes); }
  AA_FN int64_t* offsets(int stage) const { return (int64_t*)(body() + kBodyBytes + kWeightsBytes) + stage * tile.keys * 2; }
  AA_FN float* maximum() const { return (float*)offsets(tile.stages); }
  AA_FN float* sum() const { return maximum() + tile.warps_n * tile.rows; }

  // 16 bytes from base + offset; zeros where offset is negative.
  AA_FN void fill_q(int row, int chunk, const char* base_of, int64_t offset) const {
    load_chunk(start + (q_at(row) + chunk * 16), base_of, offset);
  }
  AA_FN void fill_k(int stage, int row, int chunk, const char* base_of, int64_t offset) const {
    const bool inside = cfg.head_size % 16 == 0 || chunk * kChunk < cfg.head_size;
    load_chunk(start + (k_at(stage, row) + chunk * 16), base_of + chunk * 16, inside ? offset : -1);
  }
  AA_FN void fill_v(int stage, int row, int chunk, int column, const char* base_of, int64_t offset) const {
    const int first = column + chunk * kChunk;
    if (cfg.head_size_v % kChunk == 0) {
      const bool inside = cfg.head_size_v % tile.columns == 0 || first < cfg.head_size_v;
      return load_chunk(start + (v_at(stage, row) + chunk * 16), base_of + first * kElementBytes, inside ? offset : -1);
    }
    char* to = v(stage, row) + chunk * 16;
    const char* from = offset < 0 ? nullptr : base_of + offset;
    for (int e = 0; e < kChunk; ++e) {
      const bool inside = from && first + e < cfg.head_size_v;
      if (cfg.kind == kF32)
        ((unsigned*)to)[e] = inside ? ((const unsigned*)from)[first + e] : 0;
      else
        ((unsigned short*)to)[e] = inside ? ((const unsigned short*)from)[first + e] : 0;
    }
  }
};

AA_FN float element(const char* row, int i) { return load_any(cfg.kind, row, i); }

// S = Q K^T, elementwise: each lane sums its own elements.
AA_FN void scalar_qk(const Tiles& tiles, int stage, Scores& s) {
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) s.at[i][j] = 0;
  for (int d = 0; d < kHead; d += 4) {
    float q[kLaneRows][4];
    AA_UNROLL
    for (int i = 0; i < kLaneRows; ++i) AA_UNROLL
    for (int e = 0; e < 4; ++e) q[i][e] = element(tiles.q(row_of(i)), d + e);
    AA_UNROLL
    for (int j = 0; j < kLaneKeys; ++j) {
      const char* k = tiles.k(stage, key_of(j));
      AA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float value = element(k, d + e);
        AA_UNROLL
        for (int i = 0; i < kLaneRows; ++i) s.at[i][j] += q[i][e] * value;
      }
    }
  }
}

// O += P V likewise; P goes through shared memory, where the lanes of a row find each other's.
AA_FN void scalar_pv(const Tiles& tiles, int stage, int column, const Scores& p, Accumulator& o) {
  float* weights = tiles.weights();
  AA_UNROLL
  for (int i = 0; i < kLaneRows; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) weights[row_of(i) * tile.keys + key_of(j)] = p.at[i][j];
  warp_barrier();
  for (int n = 0; n < kWarpKeys; ++n) {
    const int key = warp_n() * kWarpKeys + n;
    const char* v = cfg.latent ? tiles.k(stage, key) + column * kElementBytes : tiles.v(stage, key);
    float weight[kLaneRows];
    AA_UNROLL
    for (int i = 0; i < kLaneRows; ++i) weight[i] = weights[row_of(i) * tile.keys + key];
    AA_UNROLL
    for (int c = 0; c < kLaneColumns; ++c) {
      const float value = element(v, column_of(c));
      AA_UNROLL
      for (int i = 0; i < kLaneRows; ++i) o.at[i][c] += weight[i] * value;
    }
  }
  warp_barrier();
}
