// SPDX-License-Identifier: Apache-2.0
// A unit's scratch, the start and the end of its rows, and the joining of splits. Compiled once per instruction set behind
// simd-inl.h; included by the attention kernels.
#pragma once
#include "float8-inl.h"
#include "rotate-inl.h"

namespace anyattn::cpu {
namespace {

// The state of every row; R = rows padded to kRowStep at least, V = padded row length.
struct RowState {
  explicit RowState(const Unit& u)
      : rows(u.tokens * u.heads), rows_padded(padded(rows, kRowStep)), out_stride(padded_row(u.head_size_v)) {}
  uint32_t rows, rows_padded, out_stride;
  float* out = nullptr;      // [R, V]
  float* row_max = nullptr;  // [R]
  float* row_sum = nullptr;  // [R]
};

// Where the pieces of a unit's scratch lie; R = padded rows, D and V = padded row lengths. Each piece is a whole number of
// 64-byte lines: R is a multiple of 4 and the four arrays of R follow each other.
struct Workspace : RowState {
  explicit Workspace(const Unit& u) : RowState(u), head_size(u.q_size[0] + u.q_size[1]), q_stride(padded_row(head_size)) {
    float* at = reinterpret_cast<float*>(u.scratch);
    q = at, at += static_cast<size_t>(rows_padded) * q_stride;
    scores = at, at += static_cast<size_t>(rows_padded) * kTileKeys;
    out = at, at += static_cast<size_t>(rows_padded) * out_stride;
    row_max = at, at += rows_padded;
    row_sum = at, at += rows_padded;
    begin = reinterpret_cast<int32_t*>(at), at += rows_padded;
    end = reinterpret_cast<int32_t*>(at), at += rows_padded;
    k_tile = at, at += static_cast<size_t>(q_stride) * kTileKeys;
    v_tile = at, at += static_cast<size_t>(out_stride) * kTileKeys;
    distances = at, at += kTileKeys;
    k_scales = at, at += kTileKeys;
    v_scales = at, at += kTileKeys;
    k_rows = at;
  }
  uint32_t head_size, q_stride;
  float* q;          // [R, D] f32, or bf16 in the first half of each row
  float* scores;     // [R, kTileKeys]
  int32_t* begin;    // [R] the row's keys of this tile, [begin, end)
  int32_t* end;      // [R]
  float* k_tile;     // [D, kTileKeys]; with bf16 dots [D / 2, kTileKeys] pairs
  float* v_tile;     // [kTileKeys, V]
  float* distances;  // [kTileKeys] key position - first position of the unit, with ALiBi
  float* k_scales;   // [kTileKeys] of the keys, where the row format has them; likewise v_scales
  float* v_scales;
  float* k_rows;  // [kTileKeys, D] with Unit::load_row; V rows then stand in v_tile
};

inline void start_rows(const Unit& u, const Workspace& w) {
  __builtin_memset(w.out, 0, static_cast<size_t>(w.rows_padded) * w.out_stride * 4);
  for (uint32_t row = 0; row < w.rows_padded; ++row) {
    const bool sink = u.sinks && row < w.rows;
    w.row_max[row] = sink ? u.sinks[row % u.heads] : -__builtin_inff();
    w.row_sum[row] = sink ? 1.f : 0.f;
    w.begin[row] = w.end[row] = 0;
  }
}

// Not inline: the loop of the other outputs stays as it is without it.
[[gnu::noinline]] void store_codes(char* to, const float* from, float factor, uint32_t count) {
  for (uint32_t i = 0; i < count; i += kLanes)
    store_bytes(to + i, narrow8(load(from + i) * factor, E4M3{}), count - i < kLanes ? static_cast<int>(count - i) : kLanes);
}

// Writes one row: divides by the sum; no key and no sink give 0 and -inf.
inline void finish_row(const Unit& u, uint32_t row, float* out, float row_max, float row_sum) {
  if (u.rotated) rotate_back(out, u.head_size_v);
  const uint32_t token = row / u.heads, head = row % u.heads;
  char* to = u.out + token * u.out_token_bytes + head * u.out_head_bytes;
  const float factor = row_sum > 0.f ? u.value_scale / row_sum : row_sum == 0.f ? 0.f : row_sum;
  with_kind(u.out_kind, [&](auto element) {
    constexpr int kBytes = decltype(element)::kBytes;
    for (uint32_t i = 0; i < u.head_size_v; i += kLanes) {
      const uint32_t left = u.head_size_v - i;
      store_n(to + static_cast<size_t>(i) * kBytes, load(out + i) * factor, left < kLanes ? static_cast<int>(left) : kLanes,
              element);
    }
  });
  if (u.out_kind == kE4M3) store_codes(to, out, factor, u.head_size_v);
  if (!u.lse) return;
  const double natural = static_cast<double>(row_max) + ::log(static_cast<double>(row_sum));
  u.lse[token * u.lse_token_stride + head * u.lse_head_stride] =
      static_cast<float>(row_sum == 0.f ? -static_cast<double>(__builtin_inff()) : natural * static_cast<double>(u.lse_factor));
}

inline void finish(const Unit& u, const RowState& w) {
  if (!u.part) {
    for (uint32_t row = 0; row < w.rows; ++row)
      finish_row(u, row, w.out + static_cast<size_t>(row) * w.out_stride, w.row_max[row], w.row_sum[row]);
    return;
  }
  const size_t cells = static_cast<size_t>(w.rows_padded) * w.out_stride;
  __builtin_memcpy(u.part, w.out, cells * 4);
  __builtin_memcpy(u.part + cells, w.row_max, static_cast<size_t>(w.rows_padded) * 4);
  __builtin_memcpy(u.part + cells + w.rows_padded, w.row_sum, static_cast<size_t>(w.rows_padded) * 4);
}

// Joins the splits of one item in their order, so the result does not depend on which finished last.
void combine(const Unit* unit, const float* parts, uint64_t stride, uint32_t count) {
  const Unit& u = *unit;
  const Workspace w(u);
  const size_t cells = static_cast<size_t>(w.rows_padded) * w.out_stride;
  for (uint32_t row = 0; row < w.rows; ++row) {
    float top = -__builtin_inff();
    for (uint32_t i = 0; i < count; ++i) {
      const float part_max = parts[i * stride + cells + row];
      top = part_max > top ? part_max : top;
    }
    float total = 0.f;
    float* out = w.out;
    __builtin_memset(out, 0, static_cast<size_t>(w.out_stride) * 4);
    for (uint32_t i = 0; i < count; ++i) {
      const float* part = parts + i * stride;
      const float part_max = part[cells + row];
      if (part[cells + w.rows_padded + row] == 0.f) continue;  // no key: a maximum of -inf beside a sum of NaN has seen one
      const float weight = exp(splat(part_max - top))[0];
      total += weight * part[cells + w.rows_padded + row];
      const float* from = part + static_cast<size_t>(row) * w.out_stride;
      for (uint32_t d = 0; d < w.out_stride; d += kLanes) store(out + d, fma(load(from + d), splat(weight), load(out + d)));
    }
    finish_row(u, row, out, top, total);
  }
}

}  // namespace
}  // namespace anyattn::cpu
