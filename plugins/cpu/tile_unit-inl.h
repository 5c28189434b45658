// SPDX-License-Identifier: Apache-2.0
// What the tile kernels share: scratch of a unit, its query turned for tiles, the keys of a step found, fetched and laid out
// as tiles of 16 rows, and the walk over steps. Compiled once per instruction set; included by tile_softmax-inl.h.
#pragma once
#include "keys-inl.h"
#include "softmax-inl.h"
#include "tiles-inl.h"

namespace anyattn::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

// Rows are fetched in the order of their use (K of a step, then V), all the time: memory is idle while nothing is asked of it,
// and a burst holds up the loads behind it. So each phase of a step fetches the share of rows that is its share of the time;
// at the start of a step kLead rows are on their way. All in 1/16 of a step's keys; the shares of a step add up to 32.
constexpr int kLead = 16;

// Scratch of a unit; R = rows padded to 16, D and V = padded row lengths. Arrays by rows have room for 16 of them at least.
struct TileWorkspace : RowState {
  TileWorkspace(const Unit& u, uint32_t block_rows)
      : RowState(u),
        head_size(u.q_size[0] + u.q_size[1]),
        k_stride(padded_row(head_size)),
        blocks((rows + block_rows - 1) / block_rows),
        stored_rows(blocks * block_rows) {
    char* at = u.scratch;
    const auto take = [&](size_t bytes) {
      char* piece = at;
      at += bytes;
      return piece;
    };
    const size_t room = padded(stored_rows, 16), numbers = size_t{padded(rows, 16)} * 4;
    out = reinterpret_cast<float*>(take(room * out_stride * 4));
    q = take(size_t{blocks} * 16 * k_stride * 2);
    scores = reinterpret_cast<float*>(take(room * kStepKeys * 4 + 64));
    weights = take(room * kStepKeys * 4);
    k_rows = take(size_t{kStepKeys} * k_stride * 2);
    v_pairs = take(size_t{kStepKeys} * out_stride * 2);
    row_max = reinterpret_cast<float*>(take(numbers));
    row_sum = reinterpret_cast<float*>(take(numbers));
    rounded_sum = reinterpret_cast<float*>(take(numbers));
    begin = reinterpret_cast<int32_t*>(take(numbers));
    end = reinterpret_cast<int32_t*>(take(numbers));
    distances = reinterpret_cast<float*>(take(kStepKeys * 4));
    k_scales = reinterpret_cast<float*>(take(kStepKeys * 4));
    v_scales = reinterpret_cast<float*>(take(kStepKeys * 4));
  }
  float* scores_of(uint32_t block, uint32_t block_rows) const { return scores + size_t{block} * block_rows * kStepKeys; }
  char* weights_of(uint32_t block, uint32_t block_rows) const { return weights + size_t{block} * block_rows * kStepKeys * 4; }
  uint32_t head_size, k_stride, blocks, stored_rows;
  char* q;             // [blocks][D / 2][16 rows] pairs
  float* scores;       // [blocks][kStepKeys][rows of a block]
  char* weights;       // [blocks][2][rows of a block][kStepKeys] bf16: rounded, and what the rounding left
  char* k_rows;        // [kStepKeys][D] bf16, keys that cannot be read in place
  char* v_pairs;       // [kStepKeys / 2][V] pairs; columns within 32 as vpunpcklwd and vpunpckhwd leave them. Or rows as of K
  float* rounded_sum;  // [R] of the rounded weights
  int32_t* begin;      // [R] the row's keys of this step, [begin, end)
  int32_t* end;        // [R]
  float* distances;    // [kStepKeys], likewise the scales
  float* k_scales;
  float* v_scales;
};

// Into the second level: with memory busy decode gains 5 % over fetching into the first, which is 4 % faster for keys that are in the
// second already. Written as assembler: GCC 12 takes a function that only prefetches for one without effect.
inline void prefetch(const char* at) { __asm__ volatile("prefetcht1 %a0" ::"p"(at)); }

// Rows of K, then of V, of one step.
struct StepRows {
  const char* rows[2 * kStepKeys];
  const char** k = rows;
  const char** v = rows + kStepKeys;
  int64_t k_apart = 0, v_apart = 0;  // bytes from each row of a whole step to the next, 0 where they differ
};

// 16 rows that a tile register can take.
struct RowTile {
  const char* at;
  int64_t stride;  // bytes
};

// ---- rows of a format that is not bfloat16 as it lies

// Does copy_rows leave rows of this size in an order of its own? A product of two such rows is the same.
template <class Rows>
constexpr bool is_mixed(uint32_t size) {
  return Rows::kMixed && size % 64 == 0;
}
// Where the eight elements that stand at `place`, a multiple of 8, of a mixed row come from.
constexpr uint32_t mixed_source(uint32_t place) { return place / 64 * 64 + place % 32 * 2 + place % 64 / 32 * 8; }

inline void mix_row(char* row, uint32_t size) {
  for (uint32_t at = 0; at < size; at += 64) {
    char ordered[128];
    __builtin_memcpy(ordered, row + size_t{at} * 2, sizeof ordered);
    for (uint32_t i = 0; i < 64; i += 8) __builtin_memcpy(row + (size_t{at} + i) * 2, ordered + mixed_source(i) * 2, 16);
  }
}

// `count` rows as bfloat16, `stride` bytes apart, zeros up to a whole vector. Apart from the walk: its registers then hold the
// constants of the conversion, which were made anew for every vector.
template <class Rows>
__attribute__((noinline)) void copy_rows(const char* const* rows, int count, uint32_t size, char* to, size_t stride) {
  if constexpr (Rows::kMixed) {
    if (is_mixed<Rows>(size)) return Rows::copy_mixed(rows, count, size, to, stride);
  }
  for (int i = 0; i < count; ++i, to += stride)
    for (uint32_t at = 0; at < size; at += 32) {
      const int n = size - at < 32 ? static_cast<int>(size - at) : 32;
      _mm512_store_si512(to + size_t{at} * 2,
                         (__m512i)(n == 32 ? Rows::load_pairs(rows[i], at) : Rows::load_pairs_n(rows[i], at, n)));
    }
}

// kRows query rows stand side by side in a vector of 16 / kRows keys.
template <class Rows, int kRows>
struct TileUnit {
  const Unit& u;
  const TileWorkspace w;
  const bool split;                // weights in two bf16 parts: an output of float32 asks for more than one part gives
  const bool aligned;              // groups of 16 keys never straddle blocks
  const int64_t k_bytes, v_bytes;  // to fetch of a row; no V where it is part of K
  StepRows steps[2];
  int current = 0;     // of steps
  int count = 0;       // keys of the current step
  int next_count = 0;  // and of the next
  int fetched = 0;     // rows of the current step and the next

  explicit TileUnit(const Unit& unit)
      : u(unit),
        w(unit, kRows),
        split(unit.out_kind == kF32),
        aligned(!unit.keys.table || (unit.keys.block_size % 16 == 0 && unit.key_begin % 16 == 0)),
        k_bytes(Rows::bytes(w.head_size)),
        v_bytes(unit.keys.k == unit.keys.v ? 0 : Rows::bytes(unit.head_size_v)) {}

  int padded_count() const { return (count + 31) / 32 * 32; }

  // ---- the query, once a unit: [D / 2][rows] pairs of each block, zeros behind
  void turn_query() {
    const size_t row_bytes = size_t{w.k_stride} * 2;
    for (uint32_t block = 0; block < w.blocks; ++block) {
      char* copy = w.k_rows;  // free until the first step
      __builtin_memset(copy, 0, 16 * row_bytes);
      for (uint32_t i = 0; i < kRows && block * kRows + i < w.rows; ++i) {
        const uint32_t row = block * kRows + i;
        char* to = copy + i * row_bytes;
        for (int part = 0; part < 2 && u.q_size[part]; ++part) {
          const size_t bytes = size_t{u.q_size[part]} * 2;
          __builtin_memcpy(to, u.q[part] + row / u.heads * u.q_token_bytes[part] + row % u.heads * u.q_head_bytes[part], bytes);
          to += bytes;
        }
        if (is_mixed<Rows>(w.head_size)) mix_row(copy + i * row_bytes, w.head_size);
      }
      for (size_t at = 0; at < row_bytes; at += 64) {
        Vec cells[16];
        for (int i = 0; i < 16; ++i) cells[i] = load(copy + static_cast<size_t>(i) * row_bytes + at, F32{});
        transpose(cells);
        char* to = w.q + (block * row_bytes + at) * 16;
        for (int i = 0; i < 16; ++i, to += 64) __builtin_memcpy(to, &cells[i], 64);
      }
    }
  }

  void start() {
    __builtin_memset(w.out, 0, size_t{w.stored_rows} * w.out_stride * 4);
    for (uint32_t row = 0; row < padded(w.rows, 16); ++row) {
      const bool sink = u.sinks && row < w.rows;
      w.row_max[row] = sink ? u.sinks[row % u.heads] * kLog2E : -__builtin_inff();
      w.row_sum[row] = w.rounded_sum[row] = sink ? 1.f : 0.f;
    }
  }

  // ---- K and V of a step

  // Fetches the lines of rows [from, until) of K or of V. Of rows side by side each line once, and without a loop a row.
  static void fetch_plane(const char* const* rows, int64_t apart, int64_t bytes, int from, int until) {
    const auto lines = [](const char* at, const char* stop) {
      for (; at < stop; at += 64) prefetch(at);
    };
    const int64_t gap = apart - bytes;
    if (bytes == 0) return;
    if (gap >= 0 && gap < 64) {
      const auto up = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(rows[from]) & 63);
      return lines(rows[from] + (from == 0 && up ? up - 64 : up), rows[until - 1] + bytes);
    }
    for (int i = from; i < until; ++i) lines(rows[i], rows[i] + bytes);
  }
  // Rows counted over K, then V.
  void fetch_rows(const StepRows& step, int from, int until) const {
    const int k_until = until < kStepKeys ? until : kStepKeys, v_from = from > kStepKeys ? from - kStepKeys : 0;
    if (from < kStepKeys) fetch_plane(step.k, step.k_apart, k_bytes, from, k_until);
    if (until > kStepKeys) fetch_plane(step.v, step.v_apart, v_bytes, v_from, until - kStepKeys);
  }
  // Fetches rows up to `until`, counted over K and V of this step and the next.
  void fetch_until(int until) {
    constexpr int kRowsOfStep = 2 * kStepKeys;
    const int last = next_count ? 2 * kRowsOfStep : kRowsOfStep;
    until = until < last ? until : last;
    if (fetched < kRowsOfStep && fetched < until)
      fetch_rows(steps[current], fetched, until < kRowsOfStep ? until : kRowsOfStep);
    if (until > kRowsOfStep && fetched < until)
      fetch_rows(steps[current ^ 1], fetched > kRowsOfStep ? fetched - kRowsOfStep : 0, until - kRowsOfStep);
    fetched = fetched > until ? fetched : until;
  }
  // What one phase of a step fetches, in `parts` portions, after what those before it fetched.
  struct Share {
    Share(int before, int share, int parts)
        : from((kLead + before) * kStepKeys / 16), portion((share * kStepKeys / 16 << 8) / parts) {}
    int until(int part) const { return from + (((part + 1) * portion) >> 8); }
    int from, portion;
  };
  // Addresses of a step; behind its last key that key again, so that fetching needs no limits.
  bool find_step(int64_t key, int keys, StepRows& to) const {
    if (!find_rows(u.keys, key, keys, to)) return false;
    const char* const k_rest = keys ? to.k[keys - 1] : steps[current].k[0];
    const char* const v_rest = keys ? to.v[keys - 1] : steps[current].v[0];
    for (int i = keys; i < kStepKeys; ++i) to.k[i] = k_rest, to.v[i] = v_rest;
    const bool straight = keys == kStepKeys && (!u.keys.table || key % u.keys.block_size + keys <= u.keys.block_size);
    to.k_apart = straight ? u.keys.k_token_bytes : 0;
    to.v_apart = straight ? u.keys.v_token_bytes : 0;
    return true;
  }

  // The 32-bit words that stand `at` bytes into rows i to i + 15 of this step; `rest` for keys that it has not.
  __m512i row_words(const char* const* rows, int64_t apart, uint32_t at, int i, uint32_t rest) const {
    if (apart) {
      const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
      return _mm512_i32gather_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(apart))), rows[i] + at, 1);
    }
    alignas(64) uint32_t words[16];
    for (int j = 0; j < 16; ++j) {
      words[j] = rest;
      if (i + j < count) __builtin_memcpy(&words[j], rows[i + j] + at, 4);
    }
    return _mm512_load_si512(words);
  }
  void read_scales() {
    const StepRows& step = steps[current];
    constexpr uint32_t kOne = 0x3f800000;
    for (int i = 0; i < kStepKeys; i += 16) {
      _mm512_store_si512(w.k_scales + i, row_words(step.k, step.k_apart, w.head_size, i, kOne));
      _mm512_store_si512(w.v_scales + i, row_words(step.v, step.v_apart, u.head_size_v, i, kOne));
    }
  }

  // 16 rows from `t` on as a tile: where they lie, or copied to `copies`, an area of kStepKeys rows of `stride` bytes. Rows
  // outside [first, stop) are zero in the copy and not read.
  RowTile row_tile(const char* const* rows, int t, int first, int stop, uint32_t size, char* copies, size_t stride) const {
    const bool whole = t >= first && t + 16 <= stop;
    if (Rows::kInPlace && whole && stride == size_t{size} * 2) {
      const int64_t apart = rows[t + 1] - rows[t];
      bool straight = true;
      for (int i = 2; i < 16 && !aligned; ++i) straight &= rows[t + i] - rows[t + i - 1] == apart;
      if (straight) return {rows[t], apart};
    }
    char* to = copies + static_cast<size_t>(t) * stride;
    if (whole) {
      copy_rows<Rows>(rows + t, 16, size, to, stride);
    } else {
      __builtin_memset(to, 0, 16 * stride);
      const int begin = t > first ? t : first, end = t + 16 < stop ? t + 16 : stop;
      if (begin < end) copy_rows<Rows>(rows + begin, end - begin, size, copies + static_cast<size_t>(begin) * stride, stride);
    }
    return {to, static_cast<int64_t>(stride)};
  }
  RowTile key_tile(int t) const {
    return row_tile(steps[current].k, t, 0, count, w.head_size, w.k_rows, size_t{w.k_stride} * 2);
  }

  // ---- the walk

  // Do all rows see all keys of the step?
  bool see_all(int64_t key) const {
    bool all = true;
    for (uint32_t t = 0; t < u.tokens; ++t) all &= u.visible_begin[t] <= key && u.visible_end[t] >= key + count;
    return all;
  }
  // Which keys of the step each row sees.
  void see(int64_t key) {
    uint32_t row = 0;
    for (uint32_t t = 0; t < u.tokens; ++t) {
      const int64_t begin = u.visible_begin[t] - key, end = u.visible_end[t] - key;
      for (uint32_t head = 0; head < u.heads; ++head, ++row) {
        w.begin[row] = begin < 0 ? 0 : begin > count ? count : static_cast<int32_t>(begin);
        w.end[row] = end < 0 ? 0 : end > count ? count : static_cast<int32_t>(end);
      }
    }
    for (; row < padded(w.rows, 16); ++row) w.begin[row] = 0, w.end[row] = count;
  }

  int keys_at(int64_t key) const {
    const int64_t left = u.key_end - key;
    return left < kStepKeys ? static_cast<int>(left > 0 ? left : 0) : kStepKeys;
  }
  // step(key, all, plain) for each kStepKeys keys: do all rows see all of them, and does only a factor stand between products
  // and softmax? 1 where the table names no block.
  template <class Step>
  int32_t walk(const Step& step) {
    next_count = keys_at(u.key_begin);
    if (next_count && !find_step(u.key_begin, next_count, steps[1])) return 1;
    fetched = 2 * kStepKeys;  // those of the step before the first
    fetch_until(fetched + kLead * kStepKeys / 16);
    turn_query();
    start();
    for (int64_t key = u.key_begin; key < u.key_end; key += kStepKeys) {
      current ^= 1;
      fetched -= 2 * kStepKeys;
      count = next_count, next_count = keys_at(key + kStepKeys);
      if (!find_step(key + kStepKeys, next_count, steps[current ^ 1])) return 1;
      const bool all = see_all(key);
      const bool plain = all && count % 32 == 0 && !Rows::kScaled && !(u.soft_cap > 0) && u.alibi == kAlibiNone;
      if (!plain) see(key);
      if (u.alibi != kAlibiNone) find_distances<kStepKeys>(u, key, count, w.distances);
      if (Rows::kScaled) read_scales();
      step(key, all, plain);
    }
    return 0;
  }
};

}  // namespace
}  // namespace anyattn::cpu
