// SPDX-License-Identifier: Apache-2.0
// The host's words: one thread is a whole program, a tile is an array, all arithmetic is float32. Included by
// kernels_host.cc inside the class whose members `cfg` and `tile` the kernels read; so the kernels' functions are members.
#pragma once

static constexpr float kInfinity = std::numeric_limits<float>::infinity();
static constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.69314718055994531f;
static constexpr int kLaneRows = kHostRows, kSeenRows = kHostRows, kLate = 0, kLateAlways = 0, kAhead = 0, kPending = 0,
                     kLaneKeys = kHostKeys, kLaneSeen = kHostKeys, kThreads = 1, kLookups = kHostKeys, kMergeThreads = 1;
static constexpr bool kFlat = false, kFed = false;
static constexpr float kLift = 0, kScoreFactor = 1;
static constexpr int kRowLanes = 1;

struct Scores {
  float at[kLaneRows][kLaneKeys];
};
using SeenScores = Scores;
struct QueryOperands {};
struct Accumulator {
  float at[kLaneRows][kHostColumns];
};

int thread() const { return 0; }
int num_threads() const { return 1; }
void barrier() const {}
void let_next_launch() const {}
void wait_for_previous() const {}
void commit_loads() const {}
void wait_loads(int) const {}
int warp_n() const { return 0; }
int row_of(int i) const { return i; }
int key_of(int j) const { return j; }
int seen_row_of(int i) const { return i; }
int seen_key_of(int j) const { return j; }
int column_of(int c) const { return c; }
int slot_of(int c) const { return c; }
int row_lane() const { return 0; }
int row_group() const { return 0; }
int row_groups() const { return 1; }
float largest_of_group(float x) const { return x; }
float from_lane_xor(float x, int) const { return x; }
unsigned bits_of(float x) const { return std::bit_cast<unsigned>(x); }
static unsigned word_at(const char* at) {
  unsigned word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
float float_of_bits(unsigned bits) const { return std::bit_cast<float>(bits); }
float float_of_f16(unsigned short bits) const { return to_float(std::bit_cast<Float16>(bits)); }
float float_of_bf16(unsigned short bits) const { return to_float(std::bit_cast<BFloat16>(bits)); }
int lane_columns() const { return tile.columns; }
int lane_sums() const { return tile.columns; }
bool first_lane_of_row() const { return true; }
float larger(float a, float b) const { return a > b ? a : b; }
float row_max(float x) const { return x; }
float row_sum(float x) const { return x; }
float exp2_of(float x) const { return std::exp2(x); }
float log2_of(float x) const { return std::log2(x); }
float tanh_of(float x) const { return std::tanh(x); }
float sqrt_of(float x) const { return std::sqrt(x); }
double exp_of(double x) const { return std::exp(x); }
double log_of(double x) const { return std::log(x); }

int scan(int value, int* total) const {
  *total = value;
  return 0;
}

static float load_any(int kind, const char* row, int64_t i) {
  if (kind == kF32) return reinterpret_cast<const float*>(row)[i];
  if (kind == kF16) return to_float(reinterpret_cast<const Float16*>(row)[i]);
  return to_float(reinterpret_cast<const BFloat16*>(row)[i]);
}
static void store_any(int kind, char* row, int64_t i, float value) {
  if (kind == kF32) reinterpret_cast<float*>(row)[i] = value;
  if (kind == kF16) reinterpret_cast<Float16*>(row)[i] = from_float<Float16>(value);
  if (kind == kBF16) reinterpret_cast<BFloat16*>(row)[i] = from_float<BFloat16>(value);
}
void store_out(char* row, int64_t i, float value) {
  if (cfg.out_kind == kRowsE4M3)
    row[i] = static_cast<char>(float8_of(value, false));
  else
    store_any(cfg.out_kind, row, i, value);
}
void store_quad(const Rows& rows, int64_t row, int head, int column, const float (&value)[4], float scale) {
  char* to = rows.at(row, head);
  for (int e = 0; e < 4 && column + e < cfg.head_size_v; ++e) store_out(to, column + e, value[e] * scale);
}
static void load_four(const float* from, float (&to)[4]) { std::memcpy(to, from, sizeof to); }
static void store_two(float* to, float low, float high) {
  to[0] = low;
  to[1] = high;
}
void store_pair(const Rows& rows, int64_t row, int head, int column, float low, float high) {
  const float value[4] = {low, high, 0, 0};
  char* to = rows.at(row, head);
  for (int e = 0; e < 2 && column + e < cfg.head_size_v; ++e) store_out(to, column + e, value[e]);
}
void copy_rows(char* to, int64_t to_bytes, const char* from, int64_t from_bytes, int rows, int size) const {
  for (int i = 0; i < rows; ++i)
    std::memcpy(to + i * to_bytes, from + i * from_bytes, static_cast<size_t>(size) * static_cast<size_t>(kElementBytes));
}

// Values [first, first + count) of a cache's row of `size`, each `stride` floats further; zeros past the row's end. 4-bit rows
// leave their rotation here, so that the kernels' own turns of q and the output have nothing to do.
void read_row(const char* row, int size, int first, int count, float* to, int stride) {
  float y[kMaxRotated];
  const int codes = code_bytes(cfg, size);
  if (cfg.rows == kRowsInt4Scaled) {
    for (int e = 0; e < size; ++e) y[e] = stored_value(row, codes, e);
    hadamard(y, size);
    for (int e = 0; e < size; ++e) y[e] = signed_by_rotation(y[e] / static_cast<float>(size), e);
  }
  for (int i = 0; i < count; ++i) {
    const int e = first + i;
    to[i * stride] = e >= size ? 0.f : cfg.rows == kRowsInt4Scaled ? y[e] : stored_value(row, codes, e);
  }
}

// q [rows][kHead], k [kHead][keys] (so that a row of scores is one run of multiplications), v [keys][columns]; all float32.
struct Tiles {
  Programs* program;
  float* base;
  int kind, head, head_size, head_size_v, columns, chunk, latent;

  float* q(int row) const { return base + row * head; }
  float* k(int d) const { return base + kHostRows * head + d * kHostKeys; }
  float* v(int row) const { return base + (kHostRows + kHostKeys) * head + row * columns; }
  float* maximum() const { return v(kHostKeys); }
  float* sum() const { return maximum() + kHostRows; }
  float* staged() const { return sum() + kHostRows; }
  int64_t* offsets(int) const { return reinterpret_cast<int64_t*>(staged() + kHostRows * (columns + 8)); }

  void fill_q(int row, int c, const char* from, bool inside) const {
    for (int e = 0; e < chunk; ++e) q(row)[c * chunk + e] = inside ? load_any(kind, from, e) : 0.f;
  }
  // Rows are read whole, their scales counted in.
  void load_keys(int, const Rows& k_rows, const Rows& v_rows, int kv_head, int column) const {
    for (int row = 0; row < kHostKeys; ++row) {
      fill(k(0) + row, kHostKeys, k_rows.at(0, kv_head), offsets(0)[2 * row], head_size, 0, head);
      if (!latent) fill(v(row), 1, v_rows.at(0, kv_head), offsets(0)[2 * row + 1], head_size_v, column, columns);
    }
  }
  // Values [first, first + count) of a row of `size`, each `stride` floats further; zeros where there is no row.
  void fill(float* to, int stride, const char* from, int64_t offset, int size, int first, int count) const {
    if (offset >= 0) return program->read_row(from + offset, size, first, count, to, stride);
    for (int e = 0; e < count; ++e) to[e * stride] = 0.f;
  }
};

void prepare_query(const Tiles&) const {}
void hide_values(const Tiles&, int, int, int) const {}
void rotate_back(Accumulator&) const {}

void keep_query(const Tiles&, QueryOperands&) const {}
void share_scores(const Tiles&, const Scores& own, SeenScores& seen) const { seen = own; }
void share_tops(const Tiles&, float (&)[kSeenRows]) const {}
template <class Any>
bool feed_keys(const AttendArgs&, const BatchView&, const Any&, const Tiles&) const {
  return false;
}
void share_weights(const Tiles&, const SeenScores&, const float (&)[kSeenRows], Accumulator&) const {}
float shrink_of(const Tiles&, const float (&own)[kSeenRows], int i) const { return own[i]; }
void share_ends(const Tiles&, const float (&)[kSeenRows], const float (&)[kSeenRows], Accumulator&) const {}
struct Two {
  float low, high;
};
Two end_of(const Tiles&, const float (&maximum)[kSeenRows], const float (&sum)[kSeenRows], int i) const {
  return {maximum[i], sum[i]};
}
void dot_qk(const Tiles& tiles, int, const QueryOperands&, Scores& s) const {
  for (int i = 0; i < kLaneRows; ++i) {
    float row[kLaneKeys] = {};
    const float* q = tiles.q(i);
    for (int d = 0; d < tiles.head; ++d) {
      const float* k = tiles.k(d);
      for (int j = 0; j < kLaneKeys; ++j) row[j] += q[d] * k[j];
    }
    std::memcpy(s.at[i], row, sizeof row);
  }
}
void dot_pv(const Tiles& tiles, int, int column, const Scores& p, Accumulator& o) const {
  if (tiles.latent) {
    for (int c = 0; c < tiles.columns; ++c)
      for (int j = 0; j < kLaneKeys; ++j) tiles.v(j)[c] = tiles.k(column + c)[j];
  }
  for (int i = 0; i < kLaneRows; ++i) {
    for (int j = 0; j < kLaneKeys; ++j) {
      const float weight = p.at[i][j];
      if (weight == 0) continue;
      const float* v = tiles.v(j);
      for (int c = 0; c < tiles.columns; ++c) o.at[i][c] += weight * v[c];
    }
  }
}
