// SPDX-License-Identifier: Apache-2.0
// Decode over integer codes without turning them into floats: q and the probabilities become 16-bit integers, a row a scale, and
// meet the codes byte by byte (mma.m16n8k32). Integer sums are exact, so the two roundings are all that is lost: 2^-16 of the
// largest value of q's row, and of the largest weight among a warp's 32 keys. Rows stand as a block has them (kFlat): an odd
// number of words apart, so that a warp's 32 words of one load lie in 32 banks. Included by codes.h.
#pragma once

// A product has 16 rows: the high bytes of a tile's eight, then their low ones. A lane holds row lane / 4 of q: value = scale *
// (256 * high + low), and the sum of the row's integers.
constexpr int kByteSteps = kFlat ? kHead / 32 : 1;
struct ByteQuery {
  Four at[kByteSteps];
  float scale;
  int sum;
};

// Rows of q as bytes in place: high ones, low ones, scale, sum. 4-bit codes come apart into those of even and of odd numbers, so
// of eight values those go first.
AA_FN void quantise_query(const Tiles& tiles) {
  for (int row = thread() / 32; row < tile.rows; row += kThreads / 32) {
    const QueryRow q = load_query_row(tiles, row);
    unsigned largest = 0;
    AA_UNROLL
    for (int i = 0; i * 32 < kHead; ++i) largest = max(largest, bits_of(q.at[i]) & 0x7fffffffu);
    largest = __reduce_max_sync(~0u, largest);
    warp_barrier();  // other lanes' bytes take the place of what this one has read
    const bool finite = largest < 0x7f800000u, none = largest < bits_of(1e-30f);
    const float top = float_of_bits(largest), factor = none || !finite ? 0 : 32512 / top;
    int sum = 0;
    char* to = tiles.q(row);
    AA_UNROLL
    for (int i = 0; i * 32 < kHead; ++i) {
      const int e = i * 32 + lane(), at = kPack == 4 ? (e & ~7) + e % 2 * 4 + e / 2 % 4 : e;
      const int value = __float2int_rn(q.at[i] * factor), low = (signed char)value;
      sum += value;
      to[at] = (char)((value - low) >> 8);
      to[kHead + at] = (char)low;
    }
    sum = __reduce_add_sync(~0u, sum);
    if (lane() == 0) {
      *(float*)(to + 2 * kHead) = finite ? (none ? 0 : top / 32512) : float_of_bits(kNanScale);
      *(int*)(to + 2 * kHead + 4) = sum;
    }
  }
}
AA_FN void load_bytes(const Tiles& tiles, ByteQuery& q) {
  const char* row = tiles.q(lane() / 4);
  AA_UNROLL
  for (int s = 0; s < kByteSteps; ++s) {
    const char* at = row + (kPack == 4 ? s / 2 * 64 + lane() % 4 * 16 + s % 2 * 8 : s * 32 + lane() % 4 * 8);
    AA_UNROLL
    for (int w = 0; w < 4; ++w) q.at[s].at[w] = word_at(at + w / 2 * 4 + w % 2 * kHead);
  }
  q.scale = *(const float*)(row + 2 * kHead);
  q.sum = *(const int*)(row + 2 * kHead + 4);
}

struct ByteSums {
  int at[4];
};
// c + a b. q is signed, weights are not; so are codes of 8 bits and of 4.
template <bool kWeights>
AA_FN ByteSums multiply_bytes(const Four& a, unsigned b0, unsigned b1, const ByteSums& c = {}) {
  ByteSums d;
#define AA_MULTIPLY(kinds)                                                                                                  \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." kinds ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"       \
      : "=r"(d.at[0]), "=r"(d.at[1]), "=r"(d.at[2]), "=r"(d.at[3])                                                          \
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), \
        "r"(c.at[3]))
  if constexpr (kWeights && kPack == 4) AA_MULTIPLY("u8.u8");
  if constexpr (kWeights && kPack != 4) AA_MULTIPLY("u8.s8");
  if constexpr (!kWeights && kPack == 4) AA_MULTIPLY("s8.u8");
  if constexpr (!kWeights && kPack != 4) AA_MULTIPLY("s8.s8");
#undef AA_MULTIPLY
  return d;
}

// S [8 rows][the warp's 32 keys] = Q K^T. Column c of product n is key 8 (c / 2) + 2 n + c % 2: a lane gets the scores of eight
// neighbouring keys, the ones it weighs later.
AA_FN void byte_qk(const Tiles& tiles, int stage, const ByteQuery& q, float (&s)[kLaneKeys]) {
  AA_UNROLL
  for (int n = 0; n < 4; ++n) {
    const char* k = tiles.k(stage, warp_n() * kWarpKeys + lane() / 8 * 8 + 2 * n + lane() / 4 % 2) + lane() % 4 * 8;
    ByteSums sums = {};
    AA_UNROLL
    for (int step = 0; step < kByteSteps; ++step) {
      const unsigned word = word_at(k + (kPack == 4 ? step / 2 * 32 + step % 2 * 4 : step * 32));
      if constexpr (kPack == 4)
        sums = multiply_bytes<false>(q.at[step], word & 0x0f0f0f0fu, word >> 4 & 0x0f0f0f0fu, sums);
      else
        sums = multiply_bytes<false>(q.at[step], word, word_at(k + step * 32 + 4), sums);
    }
    AA_UNROLL
    for (int e = 0; e < 2; ++e) {
      const char* own = tiles.k(stage, key_of(2 * n + e));
      const int zero = kPack == 4 ? (int)zero_of(own, kRowCodesK) * q.sum : 0;
      s[2 * n + e] = (float)(sums.at[e] * 256 + sums.at[2 + e] - zero) * (own_scale(own, kRowCodesK, 0) * q.scale);
    }
  }
}

// Byte `b` of four words, side by side.
AA_FN unsigned byte_of_four(const unsigned (&w)[4], int b) {
  const unsigned two = b < 2 ? 0x5140 : 0x7362;
  return __byte_perm(__byte_perm(w[0], w[1], two), __byte_perm(w[2], w[3], two), b % 2 == 0 ? 0x5410 : 0x7632);
}

// A lane's eight keys: their rows of V, the words behind those, and weights: the probabilities times the rows' scales, so that
// the largest of the warp's keys is kLargest; what they are to be multiplied by.
struct Weighed {
  const char* v[8];
  unsigned last[8];
  float weight[8], share;
};
constexpr float kLargest = kFlatFloats ? 16384 : 65280;
AA_FN Weighed weigh(const Tiles& tiles, int stage, const float (&p)[kLaneSeen]) {
  Weighed w;
  unsigned largest = 0;
  AA_UNROLL
  for (int j = 0; j < 8; ++j) {
    w.v[j] = tiles.v(stage, key_of(j));
    w.last[j] = word_at(w.v[j] + kRowCodesV);
  }
  AA_UNROLL
  for (int j = 0; j < 8; ++j) {  // a key that is not seen may have a scale that is NaN
    w.weight[j] = p[j] * float_of_bits(kPack == 4 ? w.last[j] & ~15u : w.last[j]);
    if (p[j] == 0) w.weight[j] = 0;
    largest = max(largest, bits_of(w.weight[j]));
  }
  largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
  largest = max(largest, __shfl_xor_sync(~0u, largest, 2));  // NaN is larger than all
  const float top = float_of_bits(largest), factor = top > 1e-30f ? __fdividef(kLargest, top) : 0;
  AA_UNROLL
  for (int j = 0; j < 8; ++j) w.weight[j] *= factor;
  w.share = top * (1 / kLargest);
  return w;
}

// O [8 rows][columns] += P V over the warp's keys. Integers of weights are the last bits of a float that begins at 2^23.
AA_FN void byte_pv(const Tiles& tiles, int stage, const float (&p)[kLaneSeen], float (&o)[kLaneSums]) {
  const Weighed w = weigh(tiles, stage, p);
  Four a;
  unsigned four[2][4], zeros[2];
  AA_UNROLL
  for (int j = 0; j < 8; ++j) four[j / 4][j % 4] = bits_of(w.weight[j] + 0x1p23f);
  AA_UNROLL
  for (int half = 0; half < 2; ++half) {
    a.at[2 * half] = byte_of_four(four[half], 1);
    a.at[2 * half + 1] = byte_of_four(four[half], 0);
    const unsigned words[4] = {w.last[4 * half], w.last[4 * half + 1], w.last[4 * half + 2], w.last[4 * half + 3]};
    zeros[half] = byte_of_four(words, 0) & 0x0f0f0f0fu;
  }
  const auto add = [&](unsigned b0, unsigned b1, int slot, int count, float by) {
    const ByteSums sums = multiply_bytes<true>(a, b0, b1);
    AA_UNROLL
    for (int e = 0; e < count; ++e) o[slot + e] += (float)(sums.at[e] * 256 + sums.at[2 + e]) * by;
  };
  if (kPack == 4) add(zeros[0], zeros[1], kLaneSums - 1, 1, w.share);
  const float share_of_odd = w.share * (1.f / 16);  // their codes stand four bits higher
  AA_UNROLL
  for (int c = 0; c < kLaneColumns / (2 * kSpread); ++c) {
    AA_UNROLL
    for (int j = 0; j < 8; ++j) four[j / 4][j % 4] = word_at(w.v[j] + lane() / 4 * 4 + c * 32);
    AA_UNROLL
    for (int b = 0; b < 4; ++b) {
      const unsigned b0 = byte_of_four(four[0], b), b1 = byte_of_four(four[1], b);
      const int slot = 2 * kSpread * c + kSpread / 2 * b;
      if constexpr (kPack == 4) {
        add(b0 & 0x0f0f0f0fu, b1 & 0x0f0f0f0fu, slot, 2, w.share);
        add(b0 & 0xf0f0f0f0u, b1 & 0xf0f0f0f0u, slot + 2, 2, share_of_odd);
      } else {
        add(b0, b1, slot, 2, w.share);
      }
    }
  }
}
