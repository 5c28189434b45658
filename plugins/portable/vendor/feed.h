// SPDX-License-Identifier: Apache-2.0
// Warps that fetch the keys of latent tiles for the warp groups (is_fed). Rows of 16 bits are copied as they are; codes become such
// rows on their way through registers, a record's with their scales. So groups see one kind of tile and spend no time on copies.
// Two barriers a stage say when it is full and when it is empty. Included by codes.h.
#pragma once

constexpr int kFeeders = launched_threads(cfg, tile) - kThreads;
AA_FN SharedAt full_at(const Tiles& tiles, int stage) {
  return tiles.start + (SharedAt)((char*)tiles.offsets(0) - tiles.base) + stage * 16;
}
AA_FN SharedAt empty_at(const Tiles& tiles, int stage) { return full_at(tiles, stage) + 8; }
AA_FN void arrive(SharedAt at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
AA_FN void wait_turn(SharedAt at, int parity) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
  } while (!done);
}
// The stage of the tile whose turn it is, empty or full.
AA_FN int stage_of(const Tiles& tiles) { return tiles.turn % tile.stages; }
AA_FN int take_empty(const Tiles& tiles) {
  wait_turn(empty_at(tiles, stage_of(tiles)), tiles.turn / tile.stages % 2 ^ 1);
  return stage_of(tiles);
}
AA_FN int take_full(const Tiles& tiles) {
  wait_turn(full_at(tiles, stage_of(tiles)), tiles.turn / tile.stages % 2);
  return stage_of(tiles);
}
AA_FN void give_back(const Tiles& tiles) {
  arrive(empty_at(tiles, stage_of(tiles)));
  ++tiles.turn;
}

// Parts the threads; true for those that fetch. Their registers go to the others, whose accumulators fill 128.
AA_FN bool begin_feeding(const Tiles& tiles) {
  if (!kFed) return false;
  if (thread() < 2 * tile.stages)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full_at(tiles, 0) + thread() * 8),
                 "r"(thread() % 2 == 0 ? kFeeders : kThreads));
  __syncthreads();
  return thread() >= kThreads;
}
// Of 128 registers that a launch of 512 threads gives each, those that fetch keep half.
AA_FN void part_registers(bool feeds) {
  if (feeds)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
  else if (kFed)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
}

// Four threads have a row of a tile: together they read 64 bytes of it at a time. A lane a row is four times as many lines. What
// eight lanes put down, swizzled, lies in all banks.
AA_FN int fed_row() { return (thread() - kThreads) / 4; }
template <class Unit>
AA_FN int64_t fed_offset(const AttendArgs& a, const BatchView& batch, const Unit& u, int step) {
  const int key = u.first_key + step * tile.keys + fed_row();
  return offset_of(a, a.k, key, block_of(batch, u, key));
}
AA_FN void give_full(const Tiles& tiles) {
  fence_shared();
  arrive(full_at(tiles, stage_of(tiles)));
  ++tiles.turn;
}

constexpr int kFedCodes = kFed ? (kRecord ? kRecordLatent : kHead) / 64 : 1;
struct FedCodes {
  Chunk codes[kFedCodes], scales, rope[2];
};
AA_FN Chunk fetched(const char* keys, int64_t at, int byte) {  // zeros where there is no row
  return at < 0 ? Chunk{0, 0, 0, 0} : *(const Chunk*)(keys + at + byte);
}
AA_FN void fetch_piece(const char* keys, int64_t at, int c, FedCodes& to) {
  to.codes[c] = fetched(keys, at, c * 64 + lane() % 4 * 16);
}
AA_FN void fetch_rest(const char* keys, int64_t at, FedCodes& to) {
  if (!kRecord) return;
  to.scales = fetched(keys, at, kRecordScales);
  AA_UNROLL
  for (int i = 0; i < 2; ++i) to.rope[i] = fetched(keys, at, kRecordRope + lane() % 4 * 32 + i * 16);
}
// Puts a row down and has the one at `next` come in its place, piece by piece.
AA_FN void put_codes(const Tiles& tiles, int stage, FedCodes& from, const char* keys, int64_t next) {
  const auto put = [&](int chunk, int i, const Chunk& wide) {
    *(Chunk*)(tiles.base + tiles.k_at(stage, fed_row(), chunk * 128 + lane() % 4 * 32 + i * 16)) = wide;
  };
  AA_UNROLL
  for (int c = 0; c < kFedCodes; ++c) {
    const float scale = float_of_bits(from.scales.word[kRecord ? c * 64 / kRecordTile : 0]);
    AA_UNROLL
    for (int i = 0; i < 2; ++i) {
      Chunk wide;
      AA_UNROLL
      for (int w = 0; w < 4; ++w) {
        const unsigned pair = converted(from.codes[c].word[2 * i + w / 2], w % 2);
        const float low = float_of_f16((unsigned short)pair), high = float_of_f16((unsigned short)(pair >> 16));
        wide.word[w] = kRecord ? pair_of(low * scale, high * scale) : pair;
      }
      put(c, i, wide);
    }
    fetch_piece(keys, next, c, from);
  }
  AA_UNROLL
  for (int i = 0; kRecord && i < 2; ++i) {
    Chunk rope;
    AA_UNROLL
    for (int w = 0; w < 4; ++w) rope.word[w] = of_rope(from.rope[i].word[w]);
    put(kFedCodes, i, rope);
  }
  fetch_rest(keys, next, from);
}
AA_FN void copy_row(const Tiles& tiles, int stage, const char* keys, int64_t at) {
  AA_UNROLL
  for (int n = 0; n < kHead / 32; ++n) {
    const int byte = n * 64 + lane() % 4 * 16;
    load_chunk<16>(tiles.start + tiles.k_at(stage, fed_row(), byte), keys + byte, at);
  }
  commit_loads();
  wait_loads(0);
}

// True for threads that have fetched the unit's keys instead of attending to them. Codes of the next tile are under way as soon as
// this one's have left their registers.
template <class Unit>
AA_FN bool feed_keys(const AttendArgs& a, const BatchView& batch, const Unit& u, const Tiles& tiles) {
  if (!kFed || !tiles.feeds) return false;
  const int steps = (u.last_key - u.first_key + tile.keys - 1) / tile.keys;
  const char* keys = a.k.at(0, u.kv_head);
  FedCodes codes;
  int64_t at = fed_offset(a, batch, u, 0), next = fed_offset(a, batch, u, 1);
  AA_UNROLL
  for (int c = 0; kPack > 1 && c < kFedCodes; ++c) fetch_piece(keys, at, c, codes);
  if (kPack > 1) fetch_rest(keys, at, codes);
  for (int step = 0; step < steps; ++step) {
    const int64_t later = fed_offset(a, batch, u, step + 2);
    const int stage = take_empty(tiles);
    if (kPack > 1)
      put_codes(tiles, stage, codes, keys, next);
    else
      copy_row(tiles, stage, keys, at);
    at = next;
    next = later;
    give_full(tiles);
  }
  return true;
}
