// SPDX-License-Identifier: Apache-2.0
// NVIDIA's products of 16-bit tiles, and how codes of quantised rows become their operands in registers. The order of a
// product's terms is free, so a lane takes neighbouring codes of one matrix load for what 16-bit rows have eight elements
// apart; q's operands and the output's columns (column_of) follow the same order. Included by cuda.h.
#pragma once

constexpr unsigned kBoth = 0x00010001u;

AA_FN unsigned fma_pair(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  if (kHalf)
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
constexpr unsigned kMinusZeros = 0x80008000u, kOnes = kBoth * (kHalf ? 0x3c00u : 0x3f80u);
constexpr unsigned kMagic = kBoth * (kHalf ? 0x6400u : 0x4300u);  // 1024 or 128: the last bits count ones

// Is there a code among them that the fast way does not turn into its float? NaN, and of E5M2 also infinity.
AA_FN bool has_special(const Four& m) {
  if (!kFloat8 || kConverts || (kHalf && cfg.rows == kRowsE5M2)) return false;
  constexpr unsigned kBits = 0x01010101u * (cfg.rows == kRowsE5M2 ? 0x7cu : 0x7fu);
  constexpr unsigned kLast = 0x01010101u * (cfg.rows == kRowsE5M2 ? 4u : 1u);
  unsigned any = 0;
  AA_UNROLL
  for (int i = 0; i < 4; ++i) any |= (m.at[i] & kBits) + kLast;
  return (any & 0x80808080u) != 0;
}
AA_FN unsigned special_byte(unsigned pair, unsigned code, int shift) {
  const unsigned magnitude = code & 0x7fu;
  if (magnitude < (cfg.rows == kRowsE5M2 ? 0x7cu : 0x7fu)) return pair;
  const unsigned bits = cfg.rows == kRowsE5M2 && magnitude == 0x7cu ? 0x7f80u | (code & 0x80u) << 8 : 0x7fffu;
  return (pair & ~(0xffffu << shift)) | bits << shift;
}

// Two neighbouring 8-bit floats: the lower or the upper two of a word.
AA_FN unsigned converted(unsigned word, int half) {
  unsigned pair = 0;
#if __CUDA_ARCH__ >= 890
#define AA_CONVERT(kind, two) \
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2." kind "x2 %0, " two ";\n}" : "=r"(pair) : "r"(word))
  if (cfg.rows == kRowsE5M2 && half == 0) AA_CONVERT("e5m2", "low");
  if (cfg.rows == kRowsE5M2 && half == 1) AA_CONVERT("e5m2", "high");
  if (cfg.rows != kRowsE5M2 && half == 0) AA_CONVERT("e4m3", "low");
  if (cfg.rows != kRowsE5M2 && half == 1) AA_CONVERT("e4m3", "high");
#undef AA_CONVERT
#endif
  return pair;
}

// Code number `i` of both halves of `word` as a pair of the query's kind; `zeros` are 4-bit rows' zero points with kMagic.
AA_FN unsigned pair_of_codes(unsigned word, int i, unsigned zeros, bool special) {
  if (kPack == 1) return word;
  if (kConverts) return converted(__byte_perm(word, 0, 0x3120), i);
  if (kPack == 4) return fma_pair((word >> 4 * i & 0x000f000fu) | kMagic, kOnes, zeros ^ kMinusZeros);
  const unsigned high = i == 0 ? word << 8 : word;
  if (cfg.rows == kRowsInt8Scaled) {
    const unsigned low = high >> 8;
    if (kHalf) return fma_pair(((low & 0x00ff00ffu) ^ 0x00800080u) | kMagic, kOnes, kBoth * 0xe480u);
    return fma_pair((low & 0x00800080u) | kMagic, kOnes ^ kMinusZeros, (low & 0x007f007fu) | kMagic);
  }
  if (kHalf && cfg.rows == kRowsE5M2) return high & 0xff00ff00u;
  // The code's exponent and fraction at a float's place; a multiplication mends the exponent and takes subnormals along.
  constexpr int kFraction = cfg.rows == kRowsE5M2 ? 2 : 3, kShift = (kHalf ? 10 : 7) - kFraction;
  constexpr unsigned kField = kBoth * (0x7fu << kShift);
  constexpr unsigned kFactor = kBoth * (kHalf ? 0x5c00u : cfg.rows == kRowsE5M2 ? 0x7780u : 0x7b80u);  // 2^8, 2^112, 2^120
  unsigned pair = fma_pair((high & 0x80008000u) | (high >> (8 - kShift) & kField), kFactor, kMinusZeros);
  if (special) pair = special_byte(special_byte(pair, high >> 8 & 0xffu, 0), high >> 24, 16);
  return pair;
}

// A row's own scale. Records have one for every 128 columns: `group` says which.
AA_FN float own_scale(const char* row, int codes, int group) {
  if (cfg.rows == kRowsRecord) return *(const float*)(row + kRecordScales + 4 * group);
  if (cfg.rows == kRowsInt4Scaled) return float_of_bits(*(const unsigned*)(row + codes) & ~15u);
  return *(const float*)(row + codes);
}
constexpr bool kOwnScales = has_row_scales(cfg.rows) || cfg.rows == kRowsRecord;
AA_FN unsigned zero_of(const char* row, int codes) { return *(const unsigned*)(row + codes) & 15u; }

// The rope part of a record is bfloat16 whatever the query's kind is.
AA_FN unsigned of_rope(unsigned pair) {
  if (cfg.rows != kRowsRecord || !kHalf) return pair;
  return pair_of(float_of_bits(pair << 16), float_of_bits(pair & 0xffff0000u));
}

// A widened row of q is so much larger than q's.
AA_FN float* factor_of(const Tiles& tiles, int row) {
  return tile.groups ? tiles.sum() + row : (float*)(tiles.q(row) + 2 * kHead);
}

#include "feed.h"
#include "groups.h"  // on top of feed.h
#include "integers.h"

#include "floats.h"  // on top of integers.h

// Where warps share a tile (Tile::share): share.h.
struct QueryOperands;
struct Weights;
AA_FN void keep_own_query(const Tiles& tiles, QueryOperands& q);
AA_FN void dot_own(const Tiles& tiles, int stage, const QueryOperands& kept);
AA_FN void load_shared_weights(const Tiles& tiles, int stage, int n, int group, Weights& w);

// q's operands for 32 bytes of keys, `at` bytes into q's rows: one for each kPackOf.
template <int kPackOf>
AA_FN void load_query_operands(const Tiles& tiles, int part, int m, int at, Four (&q)[kPackOf]) {
  const int first = (warp_m() * tile.m_tiles + m) * 16;
  if constexpr (kPackOf == 1) {
    q[0] = load_matrices(tiles.start + (tiles.q_at(first + lane() % 16 + part * tile.rows) + at + lane() / 16 * 16));
  } else {
    const char* rows[2] = {tiles.q(first + lane() / 4, part) + at, tiles.q(first + 8 + lane() / 4, part) + at};
    AA_UNROLL
    for (int r = 0; r < 2; ++r) AA_UNROLL
    for (int half = 0; half < 2; ++half) {
      unsigned w[4];
      if constexpr (kPackOf == 2) {
        const Half4 four = *(const Half4*)(rows[r] + half * 32 + lane() % 4 * 8);
        w[0] = four.at[0] | (unsigned)four.at[1] << 16;
        w[1] = four.at[2] | (unsigned)four.at[3] << 16;
        q[half].at[r] = kConverts ? w[0] : __byte_perm(w[0], w[1], 0x5410);
        q[half].at[2 + r] = kConverts ? w[1] : __byte_perm(w[0], w[1], 0x7632);
      } else {
        const Chunk eight = *(const Chunk*)(rows[r] + half * 64 + lane() % 4 * 16);
        AA_UNROLL
        for (int j = 0; j < 2; ++j) {
          q[2 * half + j].at[r] = __byte_perm(eight.word[j], eight.word[2 + j], 0x5410);
          q[2 * half + j].at[2 + r] = __byte_perm(eight.word[j], eight.word[2 + j], 0x7632);
        }
      }
    }
  }
}

// bfloat16 rows of q as float16, in place: the largest value lies at 2^14, what it was divided by where factor_of says.
struct Widening {
  float up, factor;  // powers of two
};
AA_FN Widening widening_of(unsigned largest) {                                // a float's exponent
  const int up = min(max((127 + 14) - (int)(largest >> 23), 14 - 126), 126);  // both ways a normal number
  return {float_of_bits((unsigned)(127 + up) << 23), float_of_bits((unsigned)(127 - up) << 23)};
}
// Four threads a row of swizzled chunks: addresses of one value a lane fill more registers than the groups have.
AA_FN void widen_group_query(const Tiles& tiles) {
  const auto piece = [&](int n) { return (Chunk*)(tiles.base + tiles.q_at(thread() / 4, n * 64 + lane() % 4 * 16)); };
  unsigned top = 0;
  AA_UNROLL
  for (int n = 0; n < kHead / 32; ++n) {
    const Chunk two = *piece(n);
    AA_UNROLL
    for (int w = 0; w < 4; ++w) top = max(top, max(two.word[w] << 16 & 0x7f800000u, two.word[w] & 0x7f800000u));
  }
  const Widening by = widening_of(bits_of(row_max(float_of_bits(top))));
  AA_UNROLL
  for (int n = 0; n < kHead / 32; ++n) {
    Chunk two = *piece(n);
    AA_UNROLL
    for (int w = 0; w < 4; ++w)
      two.word[w] = pair_of(float_of_bits(two.word[w] << 16) * by.up, float_of_bits(two.word[w] & 0xffff0000u) * by.up);
    *piece(n) = two;
  }
  if (lane() % 4 == 0) *factor_of(tiles, thread() / 4) = by.factor;
}
AA_FN void widen_query(const Tiles& tiles) {
  if (tile.groups) return widen_group_query(tiles);
  for (int row = thread() / 32; row < tile.rows; row += kThreads / 32) {
    const QueryRow q = load_query_row(tiles, row);
    unsigned largest = 0;
    AA_UNROLL
    for (int i = 0; i * 32 < kHead; ++i) largest = max(largest, bits_of(q.at[i]) & 0x7f800000u);
    const Widening by = widening_of(__reduce_max_sync(~0u, largest));
    AA_UNROLL
    for (int i = 0; i * 32 < kHead; ++i) ((unsigned short*)tiles.q(row))[i * 32 + lane()] = f16_of(q.at[i] * by.up);
    if (lane() == 0) *factor_of(tiles, row) = by.factor;
  }
}
// Between two barriers once q has landed.
AA_FN void prepare_query(const Tiles& tiles) {
  if (!kRotated && !kWidened && !kFlat && !kFed) return;
  if (tile.stages == 1) commit_loads();
  wait_loads(kAhead > 0 ? kAhead - 1 : 0);
  barrier();
  if constexpr (kFlat && !kFlatFloats)
    quantise_query(tiles);
  else if constexpr (kWidened)
    widen_query(tiles);
  else if constexpr (kRotated)
    rotate_query(tiles);
  if (tile.groups) fence_shared();
  barrier();
}

// All of q's operands, where they stay in registers.
constexpr bool kKeepQuery =
    cfg.matrix && cfg.kind != kF32 && (tile.share || (tile.keep_query && cfg.rows != kRowsRecord)) && !tile.groups;
constexpr int kQuerySteps = kHead / 16, kOwnSteps = (kQuerySteps + kSplits - 1) / kSplits;
struct QueryOperands {
  ByteQuery bytes;
  float factor[kLaneRows];  // of widened rows
  Four at[kKeepQuery ? query_parts(cfg) : 1][kKeepQuery ? tile.m_tiles : 1][kKeepQuery ? kOwnSteps : 1];
};
AA_FN void keep_query(const Tiles& tiles, QueryOperands& q) {
  if constexpr (tile.share) return keep_own_query(tiles, q);
  if constexpr (kFlatFloats) return load_halves(tiles, q.bytes);
  if constexpr (kFlat) return load_bytes(tiles, q.bytes);
  AA_UNROLL
  for (int i = 0; kWidened && !tile.groups && i < kLaneRows; ++i) q.factor[i] = *factor_of(tiles, row_of(i));
  AA_UNROLL
  for (int part = 0; kKeepQuery && part < query_parts(cfg); ++part) AA_UNROLL
  for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
  for (int d = 0; d < kCodesK / 32; ++d) {
    Four some[kPack];
    load_query_operands(tiles, part, m, d * 32 * kPack, some);
    AA_UNROLL
    for (int j = 0; j < kPack; ++j) q.at[part][m][d * kPack + j] = some[j];
  }
}

AA_FN void clear(Scores& s) {
  AA_UNROLL
  for (int i = 0; i < 2 * tile.m_tiles; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) s.at[i][j] = 0;
}

// s += q k over `steps` times 32 bytes of the keys' rows from `at` on, against q from `query_at` on. A matrix load takes 32 bytes
// of 16 keys, or 64 of 8.
template <int kPackOf>
AA_FN void dot_span(const Tiles& tiles, int stage, const QueryOperands& kept, int at, int steps, int query_at, Scores& s) {
  constexpr int kLoads = kWarpKeys > 8 ? kWarpKeys / 16 : 1, kHalves = kWarpKeys > 8 ? 2 : 1;
  unsigned zeros[kWarpKeys / 8];
  AA_UNROLL
  for (int n = 0; kPackOf == 4 && n < kWarpKeys / 8; ++n)
    zeros[n] = zero_of(tiles.k(stage, warp_n() * kWarpKeys + n * 8 + lane() / 4), kCodesK) * kBoth | kMagic;
  Four k[kLoads];
  Scores odd;  // where a step is one product a warp, two sums halve the chain of them
  clear(odd);
  AA_UNROLL
  for (int d = 0; d < steps; ++d) {
    Scores& sum = kHalves == 1 && d % 2 == 1 ? odd : s;
    Four q[query_parts(cfg)][tile.m_tiles][kPackOf];
    AA_UNROLL
    for (int part = 0; part < query_parts(cfg); ++part) AA_UNROLL
    for (int m = 0; m < tile.m_tiles; ++m) {
      if constexpr (!kKeepQuery) load_query_operands(tiles, part, m, query_at + d * 32 * kPackOf, q[part][m]);
      AA_UNROLL
      for (int j = 0; kKeepQuery && j < kPackOf; ++j) q[part][m][j] = kept.at[part][m][d * kPackOf + j];
    }
    AA_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      const int key = warp_n() * kWarpKeys + n * 16 + lane() % 8 + (kHalves == 2 ? lane() / 16 * 8 : 0);
      const int part_of_row = at + d * 32 + (kHalves == 2 ? lane() / 8 % 2 : lane() / 8) * 16;
      if (kHalves == 2 || d % 2 == 0) k[n] = load_matrices(tiles.start + (tiles.k_at(stage, key) + part_of_row));
      const bool special = kPackOf == 2 && has_special(k[n]);
      AA_UNROLL
      for (int half = 0; half < kHalves; ++half) AA_UNROLL
      for (int j = 0; j < kPackOf; ++j) {
        const int first = kHalves == 2 ? 2 * half : d % 2 * 2;
        unsigned b[2];
        AA_UNROLL
        for (int e = 0; e < 2; ++e) {
          constexpr int kWord = kPackOf > 1 ? kPackOf / 2 : 1;  // operands that one word gives
          if (kPackOf == 1)
            b[e] = of_rope(k[n].at[first + e]);
          else if (kConverts)
            b[e] = converted(k[n].at[first + j], e);
          else
            b[e] = pair_of_codes(k[n].at[first + j / kWord], j % kWord * 2 + e, zeros[kHalves * n + half], special);
        }
        AA_UNROLL
        for (int part = 0; part < query_parts(cfg); ++part) AA_UNROLL
        for (int m = 0; m < tile.m_tiles; ++m) {
          float(*to)[kLaneKeys] = &sum.at[2 * m];
          const int c = 4 * n + 2 * half;
          multiply(to[0][c], to[0][c + 1], to[1][c], to[1][c + 1], q[part][m][j], b[0], b[1]);
        }
      }
    }
  }
  AA_UNROLL
  for (int i = 0; kHalves == 1 && i < 2 * tile.m_tiles; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) s.at[i][j] += odd.at[i][j];
}

AA_FN void add_scaled(const Tiles& tiles, int stage, int group, const Scores& by, Scores& s) {
  AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) {
    const float scale = own_scale(tiles.k(stage, key_of(j)), kCodesK, group);
    AA_UNROLL
    for (int i = 0; i < 2 * tile.m_tiles; ++i) s.at[i][j] += by.at[i][j] * scale;
  }
}

// S [rows of the warp][its keys] = Q K^T. Warps that share leave their part of it in shared memory.
AA_FN void dot_qk(const Tiles& tiles, int stage, const QueryOperands& q, Scores& s) {
  if constexpr (cfg.kind == kF32 || !cfg.matrix) {
    scalar_qk(tiles, stage, s);
  } else if constexpr (tile.groups) {
    group_qk(tiles, stage, s);
  } else if constexpr (kFlatFloats) {
    float_qk(tiles, stage, q.bytes, s.at[0]);
  } else if constexpr (kFlat) {
    byte_qk(tiles, stage, q.bytes, s.at[0]);
  } else if constexpr (tile.share) {
    dot_own(tiles, stage, q);
  } else if constexpr (cfg.rows == kRowsRecord) {
    clear(s);
    dot_span<1>(tiles, stage, q, kRecordRope, (cfg.head_size - kRecordLatent) / 16, kRecordLatent * 2, s);
    for (int group = 0; group < kRecordLatent / kRecordTile; ++group) {
      Scores part;
      clear(part);
      dot_span<2>(tiles, stage, q, group * kRecordTile, kRecordTile / 32, group * kRecordTile * 2, part);
      add_scaled(tiles, stage, group, part, s);
    }
  } else {
    clear(s);
    if constexpr (has_row_scales(cfg.rows)) {
      Scores part;
      clear(part);
      dot_span<kPack>(tiles, stage, q, 0, kCodesK / 32, 0, part);
      add_scaled(tiles, stage, 0, part, s);
    } else {
      dot_span<kPack>(tiles, stage, q, 0, kCodesK / 32, 0, s);
    }
    AA_UNROLL
    for (int i = 0; kWidened && i < kLaneRows; ++i) AA_UNROLL
    for (int j = 0; j < kLaneKeys; ++j) s.at[i][j] *= q.factor[i];
  }
}

// The warp's probabilities of 16 keys as one operand: two tiles of scores as they stand. Where rows of V have scales of their
// own, those are counted in. In float16 a scale's power of two goes to the values instead, lest small weights lose their bits.
struct Weights {
  Four at[kTilesM];
  unsigned factors[2], rests[2];
};
AA_FN void load_weights(const Tiles& tiles, int stage, int n, int group, const SeenScores& p, Weights& w) {
  if constexpr (tile.share) return load_shared_weights(tiles, stage, n, group, w);
  float scale[4], power[4];
  AA_UNROLL
  for (int j = 0; kOwnScales && j < 4; ++j) {
    const int key = seen_key_of(4 * n + j);
    scale[j] = own_scale(cfg.latent ? tiles.k(stage, key) : tiles.v(stage, key), kCodesV, group);
    if (!kHalf) continue;
    power[j] = fminf(fmaxf(float_of_bits(bits_of(scale[j]) & 0x7f800000u), 0x1p-14f), 0x1p7f);
    scale[j] = scale[j] / power[j];
  }
  if (kOwnScales && kHalf) {
    w.factors[0] = pair_of(power[0], power[1]);
    w.factors[1] = pair_of(power[2], power[3]);
  }
  AA_UNROLL
  for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
  for (int i = 0; i < 4; ++i) {
    float low = p.at[2 * m + i % 2][4 * n + i / 2 * 2], high = p.at[2 * m + i % 2][4 * n + i / 2 * 2 + 1];
    if (kOwnScales) {  // a key that is not seen may have a scale that is NaN
      low = low == 0 ? 0 : low * scale[i / 2 * 2];
      high = high == 0 ? 0 : high * scale[i / 2 * 2 + 1];
    }
    w.at[m].at[i] = pair_of(low, high);
  }
}

// O [rows of the warp][columns] += P V over the warp's keys.
AA_FN void dot_pv(const Tiles& tiles, int stage, int column, const SeenScores& p, Accumulator& o) {
  if constexpr (cfg.kind == kF32 || !cfg.matrix) {
    scalar_pv(tiles, stage, column, p, o);
  } else if constexpr (tile.groups) {
    group_pv(tiles, stage, p, o);
  } else if constexpr (kFlatFloats) {
    float_pv(tiles, stage, p.at[0], o.at[0]);
  } else if constexpr (kFlat) {
    byte_pv(tiles, stage, p.at[0], o.at[0]);
  } else {
    constexpr int kStep = 16 * kPack;  // columns of one load
    AA_UNROLL
    for (int n = 0; n < kSeenKeys / 16; ++n) {
      Weights w;
      const int key = (tile.share ? 0 : warp_n() * kWarpKeys) + n * 16 + lane() % 16, from = column + first_column();
      const int at = cfg.latent ? tiles.k_at(stage, key) + from * 2 / kPack
                                : tiles.v_at(stage, key) + first_column() * code_bits(cfg.rows) / 8;
      const SharedAt row = tiles.start + at + lane() / 16 * 16;
      unsigned zeros[2];
      AA_UNROLL
      for (int half = 0; kPack == 4 && half < 2; ++half)
        zeros[half] = zero_of(tiles.v(stage, seen_key_of(4 * n + 2 * half)), kCodesV) |
                      zero_of(tiles.v(stage, seen_key_of(4 * n + 2 * half + 1)), kCodesV) << 16 | kMagic;
      AA_UNROLL
      for (int c = 0; c < kWarpColumns / kStep; ++c) {
        if (c == 0 || (cfg.rows == kRowsRecord && c * kStep % kRecordTile == 0))
          load_weights(tiles, stage, n, (from + c * kStep) / kRecordTile, p, w);
        const Four v = load_transposed(row + c * 32);
        const bool special = kPack > 1 && has_special(v);
        AA_UNROLL
        for (int half = 0; half < 2; ++half) AA_UNROLL
        for (int i = 0; i < kPack; ++i) {
          unsigned b[2];
          AA_UNROLL
          for (int e = 0; e < 2; ++e) {
            b[e] = pair_of_codes(v.at[2 * half + e], i, zeros[e], special);
            if (kOwnScales && (tile.share || kHalf))
              b[e] = fma_pair(b[e], w.factors[e], tile.share ? fma_pair(b[e], w.rests[e], kMinusZeros) : kMinusZeros);
          }
          const int to = 2 * ((2 * c + half) * kPack + i);
          AA_UNROLL
          for (int m = 0; m < kTilesM; ++m) {
            float(*at_row)[kLaneSums] = &o.at[2 * m];
            multiply(at_row[0][to], at_row[0][to + 1], at_row[1][to], at_row[1][to + 1], w.at[m], b[0], b[1]);
          }
        }
      }
    }
  }
}
