// SPDX-License-Identifier: Apache-2.0
// Attention of one unit: rows of one kv head against a range of keys, online softmax over tiles of kTileKeys keys.
// Compiled once per instruction set behind simd-inl.h; serves decode, prefill, encoders, MLA and splits alike.
//
//   for each tile:  K, V row addresses -> S = Q K^T -> scale, cap, ALiBi, running max -> P = e^(S - max) -> O = O + P V
//
// A row sees one interval of keys. Keys outside it take no part: their scores are replaced, and their V rows are not
// multiplied by a zero but left out, so NaN in them changes nothing. Source: online softmax, arXiv:1805.02867.
#include "keys-inl.h"
#include "softmax-inl.h"

namespace anyattn::cpu {
namespace {

// Rows from this count on are scored against a transposed tile in scratch, fewer straight from the cache: turning a tile
// costs about as much as scoring 8 rows.
constexpr uint32_t kPackedRows = 12;
// V is widened into scratch where at least three register tiles use it.
constexpr uint32_t kWidenedRows = 12;

// ---- Q K^T: widened to f32, or bf16 pairs through the dot instruction ------------------------------------------------

template <class Rows>
struct WideDot {
  static constexpr int kPerVec = kLanes;  // elements of a row in one vector
  static constexpr int kPerCell = 1;      // elements of a row in one 32-bit cell of the packed tile
  static Vec load_row(const char* row, uint32_t at) { return Rows::load(row, at); }
  static Vec load_row_n(const char* row, uint32_t at, int n) { return Rows::load_n(row, at, n); }
  static Vec load_q(const char* q, uint32_t at) { return load(reinterpret_cast<const float*>(q) + at); }
  static Vec add(Vec sum, Vec a, Vec b) { return fma(a, b, sum); }
  static Vec cell_of(const char* q, uint32_t cell) { return splat(reinterpret_cast<const float*>(q)[cell]); }
  static void copy_q(char* to, const char* from, uint32_t count, ElementKind kind) {
    float* row = reinterpret_cast<float*>(to);
    with_kind(kind, [&](auto element) {
      constexpr int kBytes = decltype(element)::kBytes;
      uint32_t i = 0;
      for (; i + kLanes <= count; i += kLanes) store(row + i, load(from + static_cast<size_t>(i) * kBytes, element));
      if (i < count) {
        const int n = static_cast<int>(count - i);
        store_n(to + static_cast<size_t>(i) * 4, load_n(from + static_cast<size_t>(i) * kBytes, n, element), n, F32{});
      }
    });
  }
  static constexpr int kQBytes = 4;
};

#if defined(__AVX512BF16__)
// Two bf16 products a lane with f32 sums. The instruction flushes denormals; the sums stay within the bf16 bound.
template <class Rows>
struct PairDot {
  static constexpr int kPerVec = 2 * kLanes;
  static constexpr int kPerCell = 2;
  static Vec load_row(const char* row, uint32_t at) { return (Vec)Rows::load_pairs(row, at); }
  static Vec load_row_n(const char* row, uint32_t at, int n) { return (Vec)Rows::load_pairs_n(row, at, n); }
  static Vec load_q(const char* q, uint32_t at) { return load(q + static_cast<size_t>(at) * 2, F32{}); }
  static Vec add(Vec sum, Vec a, Vec b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
  static Vec cell_of(const char* q, uint32_t cell) { return splat(reinterpret_cast<const float*>(q)[cell]); }
  static void copy_q(char* to, const char* from, uint32_t count, ElementKind) {
    __builtin_memcpy(to, from, static_cast<size_t>(count) * 2);
  }
  static constexpr int kQBytes = 2;
};
#endif

// Query rows in the dot's form, zeros behind each.
template <class Dot>
void pack_query(const Unit& u, const Workspace& w) {
  __builtin_memset(w.q, 0, static_cast<size_t>(w.rows_padded) * w.q_stride * 4);
  for (uint32_t row = 0; row < w.rows; ++row) {
    char* to = reinterpret_cast<char*>(w.q + static_cast<size_t>(row) * w.q_stride);
    for (int part = 0; part < 2 && u.q_size[part]; ++part) {
      const char* from = u.q[part] + row / u.heads * u.q_token_bytes[part] + row % u.heads * u.q_head_bytes[part];
      Dot::copy_q(to, from, u.q_size[part], u.q_kind);
      to += static_cast<size_t>(u.q_size[part]) * Dot::kQBytes;
    }
  }
}

// Few rows: R rows at q against four keys at a time, straight from the cache; the next tile is fetched meanwhile.
template <class Dot, int R>
void score_rows(const Workspace& w, const char* q, float* scores, const TileRows& tile, int count, const TileRows* next,
                int next_count, int64_t k_bytes, int64_t v_bytes) {
  const uint32_t whole = w.head_size / Dot::kPerVec * Dot::kPerVec;
  const int rest = static_cast<int>(w.head_size - whole);
  const size_t q_bytes = static_cast<size_t>(w.q_stride) * 4;
  for (int t = 0; t < count; t += 4) {
    const char* keys[4];
    for (int i = 0; i < 4; ++i) keys[i] = tile.k[t + i < count ? t + i : count - 1];
    for (int i = t; next && i < t + 4 && i < next_count; ++i) {
      for (int64_t b = 0; b < k_bytes; b += 64) __builtin_prefetch(next->k[i] + b);
      for (int64_t b = 0; b < v_bytes; b += 64) __builtin_prefetch(next->v[i] + b);
    }
    Vec sums[R][4];
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < 4; ++i) sums[r][i] = Vec{};
    for (uint32_t d = 0; d < whole; d += Dot::kPerVec) {
      Vec key[4];
      for (int i = 0; i < 4; ++i) key[i] = Dot::load_row(keys[i], d);
      for (int r = 0; r < R; ++r) {
        const Vec query = Dot::load_q(q + static_cast<size_t>(r) * q_bytes, d);
        for (int i = 0; i < 4; ++i) sums[r][i] = Dot::add(sums[r][i], query, key[i]);
      }
    }
    if (rest) {
      for (int i = 0; i < 4; ++i) {
        const Vec key = Dot::load_row_n(keys[i], whole, rest);
        for (int r = 0; r < R; ++r)
          sums[r][i] = Dot::add(sums[r][i], Dot::load_q(q + static_cast<size_t>(r) * q_bytes, whole), key);
      }
    }
    for (int r = 0; r < R; ++r) sum4(sums[r], scores + r * kTileKeys + t);
  }
}

// K rows turned into k_tile[cell][key].
template <class Dot>
void pack_keys(const Workspace& w, const TileRows& tile, int count) {
  for (int t = 0; t < count; t += kLanes) {
    for (uint32_t d = 0; d < w.head_size; d += Dot::kPerVec) {
      const int n = w.head_size - d < Dot::kPerVec ? static_cast<int>(w.head_size - d) : Dot::kPerVec;
      Vec block[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const char* key = tile.k[t + i < count ? t + i : count - 1];
        block[i] = n == Dot::kPerVec ? Dot::load_row(key, d) : Dot::load_row_n(key, d, n);
      }
      transpose(block);
      float* to = w.k_tile + static_cast<size_t>(d / Dot::kPerCell) * kTileKeys + t;
      for (int i = 0; i < n / Dot::kPerCell; ++i) store(to + static_cast<size_t>(i) * kTileKeys, block[i]);
    }
  }
}

// Many rows: register tiles of kRowStep rows x kColumns vectors of keys over the packed tile.
template <class Dot>
void score_packed(const Workspace& w, int count) {
  constexpr int kWidth = kColumns * kLanes;
  const uint32_t cells = w.head_size / Dot::kPerCell;
  for (int t = 0; t < count; t += kWidth) {
    for (uint32_t row = 0; row < w.rows_padded; row += kRowStep) {
      const char* q = reinterpret_cast<const char*>(w.q + static_cast<size_t>(row) * w.q_stride);
      const float* keys = w.k_tile + t;
      Vec sums[kRowStep][kColumns];
      for (int r = 0; r < kRowStep; ++r)
        for (int c = 0; c < kColumns; ++c) sums[r][c] = Vec{};
      for (uint32_t cell = 0; cell < cells; ++cell, keys += kTileKeys) {
        Vec key[kColumns];
        for (int c = 0; c < kColumns; ++c) key[c] = load(keys + c * kLanes);
        for (int r = 0; r < kRowStep; ++r) {
          const Vec query = Dot::cell_of(q + static_cast<size_t>(r) * w.q_stride * 4, cell);
          for (int c = 0; c < kColumns; ++c) sums[r][c] = Dot::add(sums[r][c], query, key[c]);
        }
      }
      for (int r = 0; r < kRowStep; ++r)
        for (int c = 0; c < kColumns; ++c)
          store(w.scores + (row + static_cast<uint32_t>(r)) * kTileKeys + t + c * kLanes, sums[r][c]);
    }
  }
}

// ---- P V -------------------------------------------------------------------------------------------------------------

// O[R rows][C vectors at column] += P[R rows][begin, end) V[begin, end); n: lanes of the last vector that V has.
template <class Rows, int R, int C>
void add_values(const float* p, float* out, uint32_t out_stride, const char* const* v, uint32_t column, int begin, int end,
                int n) {
  Vec sums[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sums[r][c] = load(out + static_cast<size_t>(r) * out_stride + column + c * kLanes);
  for (int t = begin; t < end; ++t) {
    Vec value[C];
    for (int c = 0; c < C; ++c) {
      const uint32_t at = column + static_cast<uint32_t>(c * kLanes);
      value[c] = c + 1 < C || n == kLanes ? Rows::load(v[t], at) : Rows::load_n(v[t], at, n);
    }
    for (int r = 0; r < R; ++r) {
      const Vec weight = splat(p[r * kTileKeys + t]);
      for (int c = 0; c < C; ++c) sums[r][c] = fma(weight, value[c], sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) store(out + static_cast<size_t>(r) * out_stride + column + c * kLanes, sums[r][c]);
}

template <class Rows, int R>
void add_value_columns(const Unit& u, const Workspace& w, uint32_t row, const char* const* v, int begin, int end) {
  if (begin >= end) return;
  const float* p = w.scores + static_cast<size_t>(row) * kTileKeys;
  float* out = w.out + static_cast<size_t>(row) * w.out_stride;
  uint32_t column = 0;
  for (; column + kColumns * kLanes <= u.head_size_v; column += kColumns * kLanes)
    add_values<Rows, R, kColumns>(p, out, w.out_stride, v, column, begin, end, kLanes);
  for (; column < u.head_size_v; column += kLanes) {
    const uint32_t left = u.head_size_v - column;
    add_values<Rows, R, 1>(p, out, w.out_stride, v, column, begin, end, left < kLanes ? static_cast<int>(left) : kLanes);
  }
}

// R rows together over the keys all of them see, then each over the rest of its own.
template <class Rows, int R>
void add_value_rows(const Unit& u, const Workspace& w, uint32_t row, const char* const* v) {
  int begin = 0, end = kTileKeys;
  for (uint32_t r = row; r < row + R; ++r) {
    begin = w.begin[r] > begin ? w.begin[r] : begin;
    end = w.end[r] < end ? w.end[r] : end;
  }
  if (begin >= end) begin = end = kTileKeys;  // nothing in common
  add_value_columns<Rows, R>(u, w, row, v, begin, end);
  for (uint32_t r = row; r < row + R; ++r) {
    add_value_columns<Rows, 1>(u, w, r, v, w.begin[r], w.end[r] < begin ? w.end[r] : begin);
    add_value_columns<Rows, 1>(u, w, r, v, w.begin[r] > end ? w.begin[r] : end, w.end[r]);
  }
}

template <class Rows>
void add_tile(const Unit& u, const Workspace& w, const char* const* v) {
  uint32_t row = 0;
  for (; row + kRowStep <= w.rows; row += kRowStep) add_value_rows<Rows, kRowStep>(u, w, row, v);
  switch (w.rows - row) {
    case 3:
      return add_value_rows<Rows, 3>(u, w, row, v);
    case 2:
      return add_value_rows<Rows, 2>(u, w, row, v);
    case 1:
      return add_value_rows<Rows, 1>(u, w, row, v);
    default:
      return;
  }
}

template <class Rows>
void widen_values(const Unit& u, const Workspace& w, const TileRows& tile, int count, const char** v) {
  for (int t = 0; t < count; ++t) {
    float* to = w.v_tile + static_cast<size_t>(t) * w.out_stride;
    v[t] = reinterpret_cast<const char*>(to);
    uint32_t i = 0;
    for (; i + kLanes <= u.head_size_v; i += kLanes) store(to + i, Rows::load(tile.v[t], i));
    if (i < u.head_size_v) store(to + i, Rows::load_n(tile.v[t], i, static_cast<int>(u.head_size_v - i)));
  }
}

// Rows of a format without a kernel, as float32 in scratch.
inline void load_rows(const Unit& u, const Workspace& w, TileRows& tile, int count) {
  const bool shared = u.keys.k == u.keys.v;  // MLA: V is the front of K
  for (int t = 0; t < count; ++t) {
    float* k = w.k_rows + static_cast<size_t>(t) * w.q_stride;
    float* v = w.v_tile + static_cast<size_t>(t) * w.out_stride;
    u.load_row(tile.k[t], w.head_size, k);
    if (!shared) u.load_row(tile.v[t], u.head_size_v, v);
    tile.k[t] = reinterpret_cast<const char*>(k);
    tile.v[t] = reinterpret_cast<const char*>(shared ? k : v);
  }
}

// ---- the unit --------------------------------------------------------------------------------------------------------

template <class Rows, class Dot>
void score_tile(const Unit& u, const Workspace& w, const TileRows& tile, int count, const TileRows* next, int next_count) {
  if (w.rows >= kPackedRows) {
    pack_keys<Dot>(w, tile, count);
    return score_packed<Dot>(w, count);
  }
  const int64_t k_bytes = Rows::bytes(w.head_size), v_bytes = Rows::bytes(u.head_size_v);
  for (uint32_t row = 0; row < w.rows; row += kRowStep) {
    const char* q = reinterpret_cast<const char*>(w.q + static_cast<size_t>(row) * w.q_stride);
    float* scores = w.scores + static_cast<size_t>(row) * kTileKeys;
    const TileRows* fetch = row == 0 ? next : nullptr;
    switch (w.rows - row) {
      case 1:
        score_rows<Dot, 1>(w, q, scores, tile, count, fetch, next_count, k_bytes, v_bytes);
        break;
      case 2:
        score_rows<Dot, 2>(w, q, scores, tile, count, fetch, next_count, k_bytes, v_bytes);
        break;
      case 3:
        score_rows<Dot, 3>(w, q, scores, tile, count, fetch, next_count, k_bytes, v_bytes);
        break;
      default:
        score_rows<Dot, 4>(w, q, scores, tile, count, fetch, next_count, k_bytes, v_bytes);
        break;
    }
  }
}

template <class Rows, class Dot>
int32_t attend(const Unit* unit) {
  const Unit& u = *unit;
  const Workspace w(u);
  pack_query<Dot>(u, w);
  start_rows(u, w);
  TileRows tiles[2];
  const char* widened[kTileKeys];
  const auto keys_at = [&](int64_t key) {
    const int64_t left = u.key_end - key;
    return left < kTileKeys ? static_cast<int>(left > 0 ? left : 0) : kTileKeys;
  };
  if (!find_rows(u.keys, u.key_begin, keys_at(u.key_begin), tiles[0])) return 1;
  int current = 0;
  for (int64_t key = u.key_begin; key < u.key_end; key += kTileKeys, current ^= 1) {
    TileRows& tile = tiles[current];
    const int count = keys_at(key), next_count = keys_at(key + kTileKeys);
    if (!find_rows(u.keys, key + kTileKeys, next_count, tiles[current ^ 1])) return 1;
    if (Rows::kBytes == 4 && u.load_row) load_rows(u, w, tile, count);
    score_tile<Rows, Dot>(u, w, tile, count, next_count ? &tiles[current ^ 1] : nullptr, next_count);
    if (Rows::kScaled) {
      for (int i = 0; i < count; ++i) {
        w.k_scales[i] = Rows::scale(tile.k[i], w.head_size);
        w.v_scales[i] = Rows::scale(tile.v[i], u.head_size_v);
      }
    }

    if (u.alibi != kAlibiNone) find_distances<kTileKeys>(u, key, count, w.distances);
    for (uint32_t row = 0; row < w.rows; ++row) {
      const uint32_t token = row / u.heads, head = row % u.heads;
      const int64_t begin = u.visible_begin[token] - key, end = u.visible_end[token] - key;
      w.begin[row] = begin < 0 ? 0 : begin > count ? count : static_cast<int32_t>(begin);
      w.end[row] = end < 0 ? 0 : end > count ? count : static_cast<int32_t>(end);
      softmax_row<Rows::kScaled>(u, w, row, {u.alibi ? u.alibi_slopes[head] : 0.f, static_cast<float>(token), w.distances});
    }

    if (Rows::kBytes != 4 && w.rows >= kWidenedRows) {
      widen_values<Rows>(u, w, tile, count, widened);
      add_tile<F32Rows>(u, w, widened);
    } else {
      add_tile<Rows>(u, w, tile.v);
    }
  }
  finish(u, w);
  return 0;
}

}  // namespace
}  // namespace anyattn::cpu
