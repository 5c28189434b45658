// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit tiles on AMD's matrix cores: v_mfma_f32_16x16x16 of a wave of 64 lanes (gfx90a, gfx942), D = A B + C. Lane l
// holds row l % 16 of A, column l % 16 of B, of both the terms 4 (l / 16) to + 3; of C and D column l % 16, rows 4 (l / 16) to + 3
// (AMD's "Instruction Set Architecture" of CDNA 2 and 3, the chapter on matrix arithmetic instructions, and its Matrix Instruction
// Calculator for v_mfma_f32_16x16x16f16 and ..bf16_1k). So scores are made turned over, S^T = K Q^T: a lane then has one row of
// q and four neighbouring keys of 16, which is B of O^T = V^T P^T as it stands. Included by hip.h.
#pragma once

typedef float WaveSums __attribute__((vector_size(16)));
typedef short WaveShorts __attribute__((vector_size(8)));
typedef _Float16 WaveHalves __attribute__((vector_size(8)));
struct alignas(8) Operand {  // four terms
  unsigned pair[2];
};

AA_FN WaveSums multiply(const Operand& a, const Operand& b, const WaveSums& c) {
  if constexpr (cfg.kind == kF16)
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(WaveHalves, a), __builtin_bit_cast(WaveHalves, b), c, 0, 0,
                                                 0);
  else
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(WaveShorts, a), __builtin_bit_cast(WaveShorts, b), c, 0,
                                                     0, 0);
}
AA_FN unsigned pair_of(float low, float high) {
  if (cfg.kind == kF16) return f16_of(low) | (unsigned)f16_of(high) << 16;
  return bf16_of(low) | (unsigned)bf16_of(high) << 16;
}

// A lane's terms of 16 elements of its row: step `d` of q or of the keys.
AA_FN Operand operand_of(const char* row, int d) { return *(const Operand*)(row + d * 32 + sharer() * 8); }

constexpr int kQuerySteps = kHead / 16;
constexpr bool kKeepQuery = kWave && tile.keep_query;
struct QueryOperands {
  Operand at[kKeepQuery ? tile.m_tiles : 1][kKeepQuery ? kQuerySteps : 1];
};
AA_FN void keep_query(const Tiles& tiles, QueryOperands& q) {
  AA_UNROLL
  for (int m = 0; kKeepQuery && m < tile.m_tiles; ++m) AA_UNROLL
  for (int d = 0; d < kQuerySteps; ++d) q.at[m][d] = operand_of(tiles.q(row_of(m)), d);
}

// S [rows of the wave][its keys] = Q K^T.
AA_FN void wave_qk(const Tiles& tiles, int stage, const QueryOperands& kept, Scores& s) {
  constexpr int kTiles = (kWarpKeys + 15) / 16;
  WaveSums sum[tile.m_tiles][kTiles] = {};
  AA_UNROLL
  for (int d = 0; d < kQuerySteps; ++d) {
    Operand q[tile.m_tiles];
    AA_UNROLL
    for (int m = 0; m < tile.m_tiles; ++m) {
      if constexpr (kKeepQuery)
        q[m] = kept.at[m][d];
      else
        q[m] = operand_of(tiles.q(row_of(m)), d);
    }
    AA_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      const Operand k = operand_of(tiles.k(stage, warp_n() * kWarpKeys + n * 16 + own_row()), d);
      AA_UNROLL
      for (int m = 0; m < tile.m_tiles; ++m) sum[m][n] = multiply(k, q[m], sum[m][n]);
    }
  }
  AA_UNROLL
  for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) s.at[m][j] = sum[m][j / 4][j % 4];
}

// kSpread neighbouring columns of a row of V, one of each product: a read is that much wider.
struct alignas(2 * kSpread) Columns {
  unsigned short at[kSpread];
};
// O [rows of the wave][columns] += P V over the wave's keys.
AA_FN void wave_pv(const Tiles& tiles, int stage, int column, const SeenScores& p, Accumulator& o) {
  AA_UNROLL
  for (int n = 0; n < kWarpKeys / 16; ++n) {
    Operand weights[tile.m_tiles];
    AA_UNROLL
    for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
    for (int e = 0; e < 2; ++e) weights[m].pair[e] = pair_of(p.at[m][4 * n + 2 * e], p.at[m][4 * n + 2 * e + 1]);
    const int key = key_of(4 * n);
    const char* v = cfg.latent ? tiles.k(stage, key) + column * 2 : tiles.v(stage, key);
    AA_UNROLL
    for (int c = 0; c < kWarpColumns / (16 * kSpread); ++c) {
      Columns of_key[4];
      AA_UNROLL
      for (int e = 0; e < 4; ++e)
        of_key[e] = *(const Columns*)(v + e * (cfg.latent ? kPitchK : kPitchV) + (c * 16 + own_row()) * (2 * kSpread));
      AA_UNROLL
      for (int t = 0; t < kSpread; ++t) {
        Operand values;
        AA_UNROLL
        for (int e = 0; e < 2; ++e) values.pair[e] = of_key[2 * e].at[t] | (unsigned)of_key[2 * e + 1].at[t] << 16;
        AA_UNROLL
        for (int m = 0; m < tile.m_tiles; ++m) {
          float* to = o.at[m] + (c * kSpread + t) * 4;
          const WaveSums sum = multiply(values, weights[m], WaveSums{to[0], to[1], to[2], to[3]});
          AA_UNROLL
          for (int r = 0; r < 4; ++r) to[r] = sum[r];
        }
      }
    }
  }
}
