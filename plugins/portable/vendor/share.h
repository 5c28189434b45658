// SPDX-License-Identifier: Apache-2.0
// Warps that share a tile of keys, for latent attention: many rows, one long key that is also the value. Each warp multiplies
// its elements of q, kept in registers, with those of the keys, so that a key is read once for all rows; the parts are added up
// in shared memory; each warp then multiplies every row's probabilities with its own columns. Codes become operands in registers
// on the way to either product. Included by cuda.h.
#pragma once

// Elements go to the splits in steps of 16, in turn; of a record each split has one scale's codes, then a step of the rope.
constexpr int kCodeSteps = kPack == 1 ? 0 : kRecord ? kRecordTile / 16 : kOwnSteps;  // steps over codes, two a load
constexpr int kCodeLoads = (kCodeSteps + 1) / 2, kOwnLoads = kCodeLoads + kOwnSteps - kCodeSteps;
AA_FN int split() { return warp_n() % kSplits; }
AA_FN int own_step(int d) {
  if (kRecord) return d < kCodeSteps ? split() * kCodeSteps + d : kRecordLatent / 16 + split();
  return d * kSplits + split();
}
AA_FN bool is_own_step(int d) { return d < kOwnSteps && (kQuerySteps % kSplits == 0 || own_step(d) < kQuerySteps); }
// Byte of a key's row where an own step begins; where there is none, some byte of the row.
AA_FN int own_at(int d) {
  if (kRecord && d >= kCodeSteps) return kRecordRope + split() * 32;
  return is_own_step(d) ? own_step(d) * (32 / kPack) : 0;
}

AA_FN void keep_own_query(const Tiles& tiles, QueryOperands& q) {
  AA_UNROLL
  for (int m = 0; m < tile.m_tiles; ++m) {
    AA_UNROLL
    for (int d = 0; d < kOwnSteps; ++d) {
      Four of_codes[kPack] = {}, plain[1] = {};
      if (is_own_step(d) && d < kCodeSteps) load_query_operands(tiles, 0, m, own_step(d) * 32, of_codes);
      if (is_own_step(d) && d >= kCodeSteps) load_query_operands(tiles, 0, m, own_step(d) * 32, plain);
      q.at[0][m][d] = d < kCodeSteps ? of_codes[0] : plain[0];
    }
    AA_UNROLL
    for (int low = 0; kWidened && low < 2; ++low)
      q.factor[2 * m + low] = *(const float*)(tiles.q((warp_m() * tile.m_tiles + m) * 16 + low * 8 + lane() / 4) + 2 * kHead);
  }
  barrier();  // sums take q's place
}

AA_FN void dot_own(const Tiles& tiles, int stage, const QueryOperands& q) {
  AA_UNROLL
  for (int n = 0; n < kWarpKeys / 16; ++n) {
    const int key = warp_n() / kSplits * kWarpKeys + n * 16;
    // A load takes a step of 16 keys, or two steps where they are codes.
    const SharedAt coded = tiles.start + tiles.k_at(stage, key + lane() % 16);
    const SharedAt plain = tiles.start + (tiles.k_at(stage, key + lane() % 8 + lane() / 16 * 8) + lane() / 8 % 2 * 16);
    float s[tile.m_tiles][2][4] = {};
    Four ahead[2];  // loads stand two before their products: eight warps hide no latency
    AA_UNROLL
    for (int l = 0; l < kOwnLoads + 2; ++l) {
      const Four k = ahead[l % 2];
      const int rest = l - kCodeLoads;
      if (l < kCodeLoads)
        ahead[l % 2] = load_matrices(coded + own_at(2 * l + lane() / 16));
      else if (l < kOwnLoads)
        ahead[l % 2] = load_matrices(plain + own_at(kCodeSteps + rest));
      if (l < 2) continue;
      const bool of_codes = l - 2 < kCodeLoads, special = of_codes && has_special(k);
      AA_UNROLL
      for (int e = 0; e < (of_codes ? 2 : 1); ++e) {
        const int d = of_codes ? 2 * (l - 2) + e : kCodeSteps + rest - 2;
        if (!is_own_step(d)) continue;
        AA_UNROLL
        for (int j = 0; kRecord && d == kCodeSteps && j < 4; ++j) {
          const float scale = own_scale(tiles.k(stage, key + j / 2 * 8 + lane() % 4 * 2 + j % 2), kCodesK, split());
          AA_UNROLL
          for (int i = 0; i < 2 * tile.m_tiles; ++i) s[i / 2][j / 2][i % 2 * 2 + j % 2] *= scale;
        }
        AA_UNROLL
        for (int half = 0; half < 2; ++half) {
          unsigned b[2];
          AA_UNROLL
          for (int i = 0; i < 2; ++i) {
            if (!of_codes)
              b[i] = of_rope(k.at[2 * half + i]);
            else
              b[i] = kConverts ? converted(k.at[2 * e + half], i) : pair_of_codes(k.at[2 * e + half], i, 0, special);
          }
          AA_UNROLL
          for (int m = 0; m < tile.m_tiles; ++m) {
            float(&c)[4] = s[m][half];
            multiply(c[0], c[1], c[2], c[3], q.at[0][m][d], b[0], b[1]);
          }
        }
      }
    }
    AA_UNROLL
    for (int m = 0; m < tile.m_tiles; ++m) AA_UNROLL
    for (int half = 0; half < 2; ++half) AA_UNROLL
    for (int low = 0; low < 2; ++low) {
      const float factor = kWidened ? q.factor[2 * m + low] : 1;
      float* to = tiles.sums(split(), (warp_m() * tile.m_tiles + m) * 16 + low * 8 + lane() / 4) + key + half * 8;
      store_two(to + lane() % 4 * 2, s[m][half][2 * low] * factor, s[m][half][2 * low + 1] * factor);
    }
  }
}

// Probabilities as operands, and by how much their rows shrink.
AA_FN void share_weights(const Tiles& tiles, const SeenScores& p, const float (&shrink)[kSeenRows], Accumulator& o) {
  if constexpr (tile.groups) return settle(o), pack_weights(p, o);
  char* row = (char*)tiles.weights() + seen_row_of(0) * score_pitch(tile) * 2;
  AA_UNROLL
  for (int j = 0; j < kLaneSeen; j += 2) *(unsigned*)(row + seen_key_of(j) * 2) = pair_of(p.at[0][j], p.at[0][j + 1]);
  if (thread() % kRowSharers == 0) tiles.shrink()[seen_row_of(0)] = shrink[0];
}
// A record's scale goes to the values, as two of the kind.
AA_FN void load_shared_weights(const Tiles& tiles, int stage, int n, int group, Weights& w) {
  AA_UNROLL
  for (int m = 0; m < kTilesM; ++m)
    w.at[m] = load_matrices(tiles.start + (int)((char*)tiles.weights() - tiles.base) +
                            ((m * 16 + lane() % 16) * score_pitch(tile) * 2 + n * 32 + lane() / 16 * 16));
  AA_UNROLL
  for (int e = 0; kRecord && e < 2; ++e) {
    float exact[2], left[2];
    AA_UNROLL
    for (int i = 0; i < 2; ++i) exact[i] = own_scale(tiles.k(stage, n * 16 + e * 8 + lane() % 4 * 2 + i), kCodesK, group);
    w.factors[e] = pair_of(exact[0], exact[1]);
    AA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const unsigned short near = (unsigned short)(w.factors[e] >> 16 * i);
      left[i] = exact[i] - (kHalf ? float_of_f16(near) : float_of_bf16(near));
    }
    w.rests[e] = pair_of(left[0], left[1]);
  }
}
