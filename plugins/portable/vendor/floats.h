// SPDX-License-Identifier: Apache-2.0
// Decode over 8-bit floats with a scale a row, in the rows and the order of keys of integers.h: words of codes become operands of
// float16 without a matrix load. q's rows are float16 with a power of two each (widen_query); weights are shares of the largest
// among a warp's 32 keys, so that scales may have all of float32's range. A product has 16 rows: operands of two products stand
// together, the first's in the upper eight rows, the second's in the lower; the other half of each result is not read. So no
// operand is moved. Included by codes.h.
#pragma once

// Lane lane / 4 * 4 + l has elements 8 l to 8 l + 7 of every 32 of its row, as the two products over them take them.
AA_FN void load_halves(const Tiles& tiles, ByteQuery& q) {
  const char* row = tiles.q(lane() / 4);
  AA_UNROLL
  for (int s = 0; s < kByteSteps; ++s) {
    const Chunk eight = *(const Chunk*)(row + s * 64 + lane() % 4 * 16);
    AA_UNROLL
    for (int w = 0; w < 4; ++w) q.at[s].at[w] = eight.word[w / 2 + w % 2 * 2];
  }
  q.scale = *(const float*)(row + 2 * kHead);
}

// S [8 rows][the warp's 32 keys] = Q K^T.
AA_FN void float_qk(const Tiles& tiles, int stage, const ByteQuery& q, float (&s)[kLaneKeys]) {
  AA_UNROLL
  for (int n = 0; n < 4; ++n) {
    const char* k = tiles.k(stage, warp_n() * kWarpKeys + lane() / 8 * 8 + 2 * n + lane() / 4 % 2) + lane() % 4 * 8;
    float sums[2][4] = {};
    AA_UNROLL
    for (int step = 0; step < 2 * kByteSteps; ++step) {
      const unsigned word = word_at(k + step / 2 * 32 + step % 2 * 4);
      float(&to)[4] = sums[step % 2];
      multiply(to[0], to[1], to[2], to[3], q.at[step / 2], converted(word, 0), converted(word, 1));
    }
    AA_UNROLL
    for (int e = 0; e < 2; ++e)
      s[2 * n + e] = (sums[0][e] + sums[1][2 + e]) * own_scale(tiles.k(stage, key_of(2 * n + e)), kRowCodesK, 0) * q.scale;
  }
}

// O [8 rows][columns] += P V over the warp's keys.
AA_FN void float_pv(const Tiles& tiles, int stage, const float (&p)[kLaneSeen], float (&o)[kLaneSums]) {
  const Weighed w = weigh(tiles, stage, p);
  Four a;
  AA_UNROLL
  for (int i = 0; i < 4; ++i) a.at[i] = pair_of(w.weight[i % 2 * 4 + i / 2 * 2], w.weight[i % 2 * 4 + i / 2 * 2 + 1]);
  AA_UNROLL
  for (int c = 0; c < kLaneColumns / 8; ++c) {
    unsigned words[8];
    AA_UNROLL
    for (int j = 0; j < 8; ++j) words[j] = word_at(w.v[j] + lane() / 4 * 4 + c * 32);
    AA_UNROLL
    for (int b = 0; b < 4; ++b) {  // columns 4 (lane / 4) + b
      unsigned two[4];             // of two keys' codes, for this column and the one beside it
      AA_UNROLL
      for (int j = 0; j < 4; ++j) two[j] = __byte_perm(words[2 * j], words[2 * j + 1], b < 2 ? 0x5140 : 0x7362);
      float sums[2][4] = {};
      AA_UNROLL
      for (int half = 0; half < 2; ++half) {
        float(&to)[4] = sums[half];
        multiply(to[0], to[1], to[2], to[3], a, converted(two[2 * half], b % 2), converted(two[2 * half + 1], b % 2));
      }
      AA_UNROLL
      for (int e = 0; e < 2; ++e) o[8 * c + 2 * b + e] += (sums[0][e] + sums[1][2 + e]) * w.share;
    }
  }
}
