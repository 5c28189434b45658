// SPDX-License-Identifier: Apache-2.0
// Warps that share a tile of keys, for latent attention: many rows, one long key that is also the value. Each warp multiplies
// its elements of q, kept in registers, with those of the keys, so that a key is read once for all rows; the parts are added up
// in shared memory; each warp then multiplies every row's probabilities with its own columns. Codes become 16-bit rows once.
// Included by cuda.h.
#pragma once

AA_FN int split() { return warp_n() % kSplits; }
// Steps of 16 elements are dealt to the splits in turn.
AA_FN bool is_own_step(int d) { return kQuerySteps % kSplits == 0 || d * kSplits + split() < kQuerySteps; }

AA_FN void keep_own_query(const Tiles& tiles, QueryOperands& q) {
  AA_UNROLL
  for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
  for (int d = 0; d < kOwnSteps; ++d) {
    Four operand[1] = {};
    if (is_own_step(d)) load_query_operands(tiles, 0, m, (d * kSplits + split()) * 32, operand);
    q.at[0][m][d] = operand[0];
  }
  barrier();  // sums take q's place
}

AA_FN void dot_own(const Tiles& tiles, int place, const QueryOperands& q) {
  AA_UNROLL
  for (int n = 0; n < kWarpKeys / 16; ++n) {
    const int key = warp_n() / kSplits * kWarpKeys + n * 16;
    const SharedAt row =
        tiles.start + (tiles.key_at(place, key + lane() % 8 + lane() / 16 * 8) + lane() / 8 % 2 * 16 + split() * 32);
    float s[tile.m_tiles][2][4] = {};
    Four ahead[2];  // loads stand two steps before their products: eight warps hide no latency
    AA_UNROLL
    for (int d = 0; d < kOwnSteps + 2; ++d) {
      const Four k = ahead[d % 2];
      if (d < kOwnSteps) ahead[d % 2] = load_matrices(row + d * kSplits * 32);
      if (d < 2 || !is_own_step(d - 2)) continue;
      AA_UNROLL
      for (int half = 0; half < 2; ++half) AA_UNROLL
      for (int m = 0; m < tile.m_tiles; ++m) {
        float(&c)[4] = s[m][half];
        multiply(c[0], c[1], c[2], c[3], q.at[0][m][d - 2], k.at[2 * half], k.at[2 * half + 1]);
      }
    }
    AA_UNROLL
    for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
    for (int half = 0; half < 2; ++half) AA_UNROLL
    for (int low = 0; low < 2; ++low)
      store_two(
          tiles.sums(split(), (warp_m() * tile.m_tiles + m) * 16 + low * 8 + lane() / 4) + key + half * 8 + lane() % 4 * 2,
          s[m][half][2 * low], s[m][half][2 * low + 1]);
  }
}

// Probabilities as operands, and by how much their rows shrink.
AA_FN void share_weights(const Tiles& tiles, const SeenScores& p, const float (&shrink)[kSeenRows]) {
  char* row = (char*)tiles.weights() + seen_row_of(0) * score_pitch(tile) * 2;
  AA_UNROLL
  for (int j = 0; j < kLaneSeen; j += 2) *(unsigned*)(row + seen_key_of(j) * 2) = pair_of(p.at[0][j], p.at[0][j + 1]);
  if (thread() % kRowSharers == 0) tiles.shrink()[seen_row_of(0)] = shrink[0];
}
AA_FN void load_shared_weights(const Tiles& tiles, int n, Four* w) {
  AA_UNROLL
  for (int m = 0; m < kTilesM; ++m)
    w[m] = load_matrices(tiles.start + (int)((char*)tiles.weights() - tiles.base) +
                         ((m * 16 + lane() % 16) * score_pitch(tile) * 2 + n * 32 + lane() / 16 * 16));
}

// A tile of codes as rows of the query's kind, scales of a record counted in: eight values at a time.
AA_FN void turn_keys(const Tiles& tiles, int step) {
  constexpr int kPieces = kHead / 8, kLanes = power_of_two_in(kPieces), kRows = kThreads / kLanes;
  const int stage = step % tile.stages;
  AA_UNROLL_FOUR
  for (int n = 0; n < tile.keys * kPieces / kThreads + (tile.keys * kPieces % kThreads != 0); ++n) {
    const int row = thread() / kLanes + n / (kPieces / kLanes) * kRows,
              piece = thread() % kLanes + n % (kPieces / kLanes) * kLanes;
    if (row >= tile.keys) break;
    const char* from = tiles.k(stage, row);
    Chunk to;
    if (cfg.rows == kRowsRecord && piece >= kRecordLatent / 8) {
      to = *(const Chunk*)(from + kRecordRope + (piece - kRecordLatent / 8) * 16);
      AA_UNROLL
      for (int w = 0; w < 4; ++w) to.word[w] = of_rope(to.word[w]);
    } else {
      const Two codes = *(const Two*)(from + piece * 8);
      const unsigned words[2] = {bits_of(codes.low), bits_of(codes.high)};
      const bool special = has_special(Four{{words[0], words[1], 0, 0}});
      unsigned scale = 0, rest = 0;  // a float32 scale as two values of the kind
      if (cfg.rows == kRowsRecord) {
        const float exact = own_scale(from, kCodesK, piece / (kRecordTile / 8));
        scale = pair_of(exact, exact);
        const float left = exact - (kHalf ? float_of_f16((unsigned short)scale) : float_of_bits(scale << 16));
        rest = pair_of(left, left);
      }
      AA_UNROLL
      for (int w = 0; w < 4; ++w) {
        unsigned pair = pair_of_float8(__byte_perm(words[w / 2], 0, w % 2 ? 0x3424 : 0x1404), special);
        if (cfg.rows == kRowsRecord) pair = fma_pair(pair, scale, fma_pair(pair, rest, kMinusZeros));
        to.word[w] = pair;
      }
    }
    *(Chunk*)(tiles.base + tiles.turned_at(step % 2, row) + piece * 16) = to;
  }
}
