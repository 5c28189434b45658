// SPDX-License-Identifier: Apache-2.0
// Dot products to logits (scale, soft cap, ALiBi) and the online softmax of one row of a tile. Compiled once per instruction
// set behind simd-inl.h. Source: online softmax, arXiv:1805.02867.
#pragma once
#include "unit-inl.h"

namespace anyattn::cpu {
namespace {

// Positions of the tile's keys relative to the unit's first row.
template <int kCount>
void find_distances(const Unit& u, int64_t key, int count, float* to) {
  const int64_t world = u.shard.world, rank = u.shard.rank, interleave = u.shard.interleave;
  for (int i = 0; i < kCount; ++i) {
    const int64_t l = key + (i < count ? i : 0);
    const int64_t position = world == 1 ? l : ((l / interleave) * world + rank) * interleave + l % interleave;
    to[i] = static_cast<float>(position - u.first_position);
  }
}

struct RowBias {
  float slope;
  float token;             // of the row, relative to the first
  const float* distances;  // of the keys, relative to the first
};

// Dot products to logits: scale, soft cap, ALiBi. slope and distance (key - query position) are read with ALiBi only.
inline Vec logits(const Unit& u, Vec dots, Vec slope, Vec distance) {
  Vec s = dots * u.softmax_scale;
  if (u.soft_cap > 0) s = tanh(s / u.soft_cap) * u.soft_cap;
  if (u.alibi == kAlibiNone) return s;
  const Vec size = (Vec)((WordVec)distance & 0x7fffffffu);
  if (u.alibi == kAlibiLinear) return fma(distance, slope, s);
  if (u.alibi == kAlibiSymmetric) return fma(size, -slope, s);
  return distance <= 0.f ? fma(sqrt(size), -slope, s) : s;
}

// One row of a tile: dots become e^(logit - max), the running max and sum move on, the accumulators are rescaled.
template <bool kScaled>
void softmax_row(const Unit& u, const Workspace& w, uint32_t row, const RowBias& bias) {
  constexpr float kNone = -__builtin_inff();
  const int begin = w.begin[row], end = w.end[row];
  if (begin >= end) return;
  float* s = w.scores + static_cast<size_t>(row) * kTileKeys;
  const int first = begin / kLanes * kLanes;
  const IntVec lanes = lane_numbers();
  Vec top = splat(kNone);
  for (int at = first; at < end; at += kLanes) {
    Vec value = load(s + at);
    if (kScaled) value *= load(w.k_scales + at);
    const Vec distance = u.alibi == kAlibiNone ? Vec{} : load(bias.distances + at) - bias.token;
    value = logits(u, value, splat(bias.slope), distance);
    if (at < begin || at + kLanes > end) {
      const IntVec key = lanes + at;
      value = (key >= begin) & (key < end) ? value : splat(kNone);
    }
    store(s + at, value);
    top = max(value, top);
  }
  const float before = w.row_max[row];
  const float tile_max = largest(top);
  const float now = tile_max > before ? tile_max : before;
  // All visible logits are -inf: they weigh nothing against 0 as well.
  const Vec base = splat(now == kNone ? 0.f : now);
  Vec total{};
  for (int at = first; at < end; at += kLanes) {
    const Vec p = exp(load(s + at) - base);
    store(s + at, kScaled ? p * load(w.v_scales + at) : p);
    total += p;
  }
  if (now != before) {
    const float kept = before == kNone ? 0.f : exp(splat(before - now))[0];
    float* out = w.out + static_cast<size_t>(row) * w.out_stride;
    for (uint32_t i = 0; i < w.out_stride; i += kLanes) store(out + i, load(out + i) * kept);
    w.row_sum[row] *= kept;
    w.row_max[row] = now;
  }
  w.row_sum[row] += sum(total);
}

}  // namespace
}  // namespace anyattn::cpu
