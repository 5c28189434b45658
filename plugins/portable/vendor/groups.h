// SPDX-License-Identifier: Apache-2.0
// Warp groups that multiply (Tile::groups): wgmma of sm_90a, 64 rows a group of four warps. A lane holds of a group's sums what it
// holds of mma.m16n8's, so the softmax knows no difference. Two groups beside each other over columns (latent keys) make the
// scores of half the keys each and tell each other the probabilities. Tiles lie in chunks of 64 columns, rows of 128 bytes, their
// 16-byte pieces swizzled over eight rows (Tiles::byte_at); feed.h fetches latent ones. Included by codes.h.
#pragma once

AA_FN void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
AA_FN void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
AA_FN void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler moves no use of these across.
template <int kRows, int kCount>
AA_FN void pin(float (&x)[kRows][kCount]) {
  AA_UNROLL
  for (int i = 0; i < kRows; ++i) AA_UNROLL
  for (int j = 0; j < kCount; ++j) asm volatile("" : "+f"(x[i][j])::"memory");
}

// An operand in shared memory. `chunk`: bytes from one 64 columns to the next where the product runs along rows (V).
AA_FN uint64_t operand_at(SharedAt at, int chunk) {
  return (uint64_t)((at & 0x3ffffu) >> 4) | (uint64_t)(chunk >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define AA_SUM2(j) "+f"(x[j]), "+f"(x[(j) + 1]), "+f"(y[j]), "+f"(y[(j) + 1])
#define AA_SUM8(j) AA_SUM2(j), AA_SUM2((j) + 2), AA_SUM2((j) + 4), AA_SUM2((j) + 6)
#define AA_SUM16(j) AA_SUM8(j), AA_SUM8((j) + 8)
#define AA_LIST16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define AA_SUM24(j) AA_SUM16(j), AA_SUM8((j) + 16)
#define AA_SUM32(j) AA_SUM16(j), AA_SUM16((j) + 16)
#define AA_LIST10(a) #a "0,%" #a "1,%" #a "2,%" #a "3,%" #a "4,%" #a "5,%" #a "6,%" #a "7,%" #a "8,%" #a "9"
#define AA_LIST32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%" AA_LIST10(1) ",%" AA_LIST10(2) ",%30,%31"
#define AA_LIST48 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%" AA_LIST10(1) ",%" AA_LIST10(2) ",%" AA_LIST10(3) ",%40,%41,%42,%43,%44,%45,%46,%47"
#define AA_LIST64                                                                                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%" AA_LIST10(1) ",%" AA_LIST10(2) ",%" AA_LIST10(3) ",%" AA_LIST10(4) ",%" AA_LIST10( \
      5) ",%60,%61,%62,%63"
#define AA_PRODUCT_OF_SHARED(kind, n, list, sums, a_at, b_at, p)                                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." kind "." kind \
               " {" list "}, " a_at ", " b_at ", p, 1, 1, 0, 0;\n}"                                                       \
               : sums                                                                                                     \
               : "l"(a), "l"(b), "r"(more))
#define AA_PRODUCT_OF_REGISTERS(kind, n, list, sums, a_at, b_at)                                                               \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." kind "." kind " {" list "}, {" a_at "}, " b_at ", 1, 1, 1, 1;" \
               : sums                                                                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
// kN columns of sums, of which a lane holds pieces x and y of two rows: += a b^T with keys of 32, 64 or 96 rows, or += a b with values
// of 64 or 128 columns from `first` on. Not `more`: the first product, which sets them.
template <int kN, int kCount>
AA_FN void multiply_keys(float (&x)[kCount], float (&y)[kCount], uint64_t a, uint64_t b, int more) {
  if constexpr (kN == 32 && kHalf) AA_PRODUCT_OF_SHARED("f16", "32", AA_LIST16, AA_SUM8(0), "%16", "%17", "%18");
  if constexpr (kN == 32 && !kHalf) AA_PRODUCT_OF_SHARED("bf16", "32", AA_LIST16, AA_SUM8(0), "%16", "%17", "%18");
  if constexpr (kN == 64 && kHalf) AA_PRODUCT_OF_SHARED("f16", "64", AA_LIST32, AA_SUM16(0), "%32", "%33", "%34");
  if constexpr (kN == 64 && !kHalf) AA_PRODUCT_OF_SHARED("bf16", "64", AA_LIST32, AA_SUM16(0), "%32", "%33", "%34");
  if constexpr (kN == 96 && kHalf) AA_PRODUCT_OF_SHARED("f16", "96", AA_LIST48, AA_SUM24(0), "%48", "%49", "%50");
  if constexpr (kN == 96 && !kHalf) AA_PRODUCT_OF_SHARED("bf16", "96", AA_LIST48, AA_SUM24(0), "%48", "%49", "%50");
}
template <int kN, int kCount>
AA_FN void multiply_values(float (&x)[kCount], float (&y)[kCount], int first, const unsigned* a, uint64_t b) {
  if constexpr (kN == 64 && kHalf) AA_PRODUCT_OF_REGISTERS("f16", "64", AA_LIST32, AA_SUM16(first), "%32,%33,%34,%35", "%36");
  if constexpr (kN == 64 && !kHalf) AA_PRODUCT_OF_REGISTERS("bf16", "64", AA_LIST32, AA_SUM16(first), "%32,%33,%34,%35", "%36");
  if constexpr (kN == 128 && kHalf) AA_PRODUCT_OF_REGISTERS("f16", "128", AA_LIST64, AA_SUM32(first), "%64,%65,%66,%67", "%68");
  if constexpr (kN == 128 && !kHalf)
    AA_PRODUCT_OF_REGISTERS("bf16", "128", AA_LIST64, AA_SUM32(first), "%64,%65,%66,%67", "%68");
}

// S = Q K^T of the group's rows and its keys, in flight.
AA_FN void group_qk(const Tiles& tiles, int stage, Scores& s) {
  if (kFed) stage = take_full(tiles);
  const uint64_t a = operand_at(tiles.start + (tiles.q_at(0) + warp_m() / 4 * (64 * 128)), 0);
  fence_products();
  AA_UNROLL
  for (int c = 0; c < kHead / 64; ++c) {
    const uint64_t b = operand_at(tiles.start + (tiles.k_at(stage, 0, c * 128) + warp_n() * (kWarpKeys * 128)), 0);
    AA_UNROLL
    for (int d = 0; d < 4; ++d)
      multiply_keys<kWarpKeys>(s.at[0], s.at[1], a + (c * (tile.rows * 128) + d * 32) / 16, b + d * 32 / 16, c + d > 0);
  }
  commit_products();
}

// Nothing in flight any more.
template <class Accumulator>
AA_FN void settle(Accumulator& o) {
  if (!tile.groups) return;
  wait_products<0>();
  pin(o.at);
  AA_UNROLL
  for (int i = 0; i < kGroupWeights; ++i) asm volatile("" : "+r"(o.weights[i])::"memory");
}

AA_FN void pack_weights(const SeenScores& p, Accumulator& o) {
  AA_UNROLL
  for (int i = 0; i < kLaneKeys; ++i) o.weights[i] = pair_of(p.at[i % 2][i / 2 * 2], p.at[i % 2][i / 2 * 2 + 1]);
}

// O += P V of the group's rows and columns; in flight where kLate. Of latent keys its own come first; meanwhile the other group
// leaves its probabilities where the keys' last columns stood, which no product reads any more.
AA_FN void group_pv(const Tiles& tiles, int stage, const SeenScores& p, Accumulator& o) {
  constexpr int kPart = kWarpColumns % 128 == 0 ? 128 : 64, kChunkBytes = tile.keys * 128, kOwn = kWarpKeys / 16;
  if (!kLate) pack_weights(p, o);
  if (kFed) stage = stage_of(tiles);
  Chunk* told = (Chunk*)(tiles.base + tiles.k_at(stage, 0, 2 * kHead - 128));
  AA_UNROLL
  for (int i = 0; kFed && i < kOwn; ++i) {
    Chunk four;
    AA_UNROLL
    for (int w = 0; w < 4; ++w) four.word[w] = o.weights[4 * i + w];
    told[i * kThreads + thread()] = four;
  }
  const int from = first_column() * 2;
  const uint64_t b =
      operand_at(tiles.start + (cfg.latent ? tiles.k_at(stage, 0, from) : tiles.v_at(stage, 0, from)), kChunkBytes);
  pin(o.at);
  fence_products();
  AA_UNROLL
  for (int n = 0; n < tile.keys / 16; ++n) {
    if (kFed && n == kOwn) {
      barrier();
      AA_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        const Chunk four = told[i * kThreads + (thread() ^ kThreads / 2)];
        AA_UNROLL
        for (int w = 0; w < 4; ++w) o.weights[4 * (kOwn + i) + w] = four.word[w];
      }
      fence_products();
    }
    const int keys = kFed ? n ^ warp_n() * kOwn : n;
    AA_UNROLL
    for (int part = 0; part < kWarpColumns / kPart; ++part)
      multiply_values<kPart>(o.at[0], o.at[1], part * kPart / 4, o.weights + 4 * n,
                             b + part * (kPart / 64) * kChunkBytes / 16 + keys * 2048 / 16);
  }
  commit_products();
  if (!kLate) settle(o);
  if (kFed) give_back(tiles);
}

// Scores that are in flight, and behind them a product with values.
template <class Tiles, class Scores>
AA_FN void wait_scores(const Tiles& tiles, Scores& own) {
  if (!tile.groups) return;
  wait_products<kLateAlways>();
  pin(own.at);
  AA_UNROLL
  for (int i = 0; kWidened && i < kLaneRows; ++i) AA_UNROLL
  for (int j = 0; j < kLaneKeys; ++j) own.at[i][j] *= *factor_of(tiles, row_of(i));
}
