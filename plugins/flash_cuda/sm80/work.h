// SPDX-License-Identifier: Apache-2.0
// How the general path cuts its work: tiles, units, and where each block of the fixed launch begins. Included by its host code and
// kernels. A unit is up to `rows` rows (query tokens x query heads of one kv head) over all their keys.
#pragma once

#include <cstdint>

#include "params.h"

#ifdef __CUDACC__
#define ANYATTN_FLASH_BOTH __host__ __device__
#else
#define ANYATTN_FLASH_BOTH
#endif

namespace anyattn::flash::sm80 {

// One size of block. Warps stand side by side over rows or over keys.
struct Tile {
  int head;       // columns of q, k and v, zero-filled from head_size on: a multiple of 64
  int rows;       // warp_rows * warps over rows
  int warp_rows;  // a multiple of 16
  int keys;       // a step, twice in flight
  int warps_over_keys;
  int blocks;  // a multiprocessor is asked to hold

  constexpr int warps() const { return rows / warp_rows * warps_over_keys; }
  constexpr int threads() const { return 32 * warps(); }
  constexpr int row_bytes() const { return head * 2; }
  constexpr int query_bytes() const { return rows * row_bytes(); }
  constexpr int stage_bytes() const { return 2 * keys * row_bytes(); }  // of k and of v
  constexpr int offset_bytes() const { return keys * 16; }              // of a stage: where its rows lie in k and v
  constexpr int shared_bytes() const { return query_bytes() + 2 * (stage_bytes() + offset_bytes()); }
};

// Each fits into the 99 KiB of sm_86 and sm_89.
inline constexpr Tile kDecodeTiles[] = {
    {64, 16, 16, 64, 4, 4},   // four warps share the keys, so that each key is read once; 36 KiB
    {128, 16, 16, 64, 4, 3},  // 70 KiB: three blocks keep 96 KiB of keys in flight on sm_90
    {256, 16, 16, 32, 2, 3},  // 16 keys a warp are one operand of P V: two warps
};
inline constexpr Tile kPrefillTiles[] = {
    {64, 128, 32, 64, 1, 2},   // 50 KiB; 32 rows a warp: each key leaves shared memory half as often as with 16
    {128, 128, 32, 64, 1, 2},  // 98 KiB; 64 scores and 128 sums a thread
    {256, 64, 16, 32, 1, 1},   // 97 KiB; 128 sums a thread leave room for one block
};

// The smallest head size with a tile that holds `size` columns; 0: none.
constexpr int head_of(int size) {
  for (const Tile& tile : kDecodeTiles)
    if (size <= tile.head) return tile.head;
  return 0;
}
constexpr Tile tile_of(int head, bool prefill) {
  for (const Tile& tile : prefill ? kPrefillTiles : kDecodeTiles)
    if (tile.head == head) return tile;
  return {};
}

// How the heads and tokens of a problem fill a tile.
struct Cut {
  int heads;       // query heads in a unit
  int tokens;      // query tokens in a unit
  int head_units;  // units over all heads
};
constexpr Cut cut_of(const Tile& tile, const Problem& problem) {
  const int group = problem.group(), pieces = (group + tile.rows - 1) / tile.rows, heads = (group + pieces - 1) / pieces;
  return {heads, tile.rows / heads, problem.num_kv_heads * ((group + heads - 1) / heads)};
}

// Rows of one request that are worked on together, and the keys that some of them see. At least one tile, so that rows without
// a key are visited and written too.
struct Item {
  int32_t req, first_token, tokens;
  int32_t key_begin, key_end, tiles;
};

// Where a block begins: unit (item, head unit) and a tile in it; it ends where the next one begins. Item num_items is the end.
struct Place {
  int32_t item, head, tile, reserved;
  Item first;  // a copy of the item, so that the first keys are one load away
};

// A unit that is cut: its pieces stand in blocks [block, block + pieces).
struct CutUnit {
  int32_t block, pieces, head, reserved;
  Item item;
};

// All a lane's launches know beside the call. Pointers into the persistent block.
struct Work {
  int num_blocks;  // of the launch
  int heads;       // query heads in a unit
  int tokens;      // query tokens in a unit
  int head_units;  // units over all heads
  int keys;        // a tile
  int unit_cost;   // of a unit beside its tiles, in tiles
  int min_cost;    // least work of a block, in tiles
  int invariant;   // 1: a unit is never cut
  int min_query, max_query;
  Place* places;    // [num_blocks + 1]
  Item* items;      // [max items]
  int64_t* before;  // [max items], cost of a head unit of the items before
  int32_t* first;   // [max_num_reqs], first item of a request
  CutUnit* cuts;    // [num_blocks], in any order
  int32_t* num_cuts;

  constexpr int cost_of(const Item& item) const { return item.tiles + unit_cost; }
};

// A row of a partial result in scratch: maximum (base 2), sum, two of padding, then `head` unscaled outputs.
constexpr int part_floats(const Tile& tile) { return tile.head + 4; }

}  // namespace anyattn::flash::sm80
