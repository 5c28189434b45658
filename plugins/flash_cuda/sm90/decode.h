// SPDX-License-Identifier: Apache-2.0
// How decode cuts its work on sm_90: chunks of keys, items, and lines of work for the blocks. Included by its host code and kernels.
// An item is up to `tokens` query tokens of one request; a unit is an item and up to 16 rows' worth of the query heads of a kv head.
// The chunks of all units stand in a row that is cut into lines, one a block, so that lengths do not matter (stream-K, arXiv:2301.03598).
#pragma once

#include <cstdint>

#include "cuda_common/divisor.h"
#include "sm90/decode_tile.h"
#include "visible.cuh"

namespace anyattn::flash::sm90 {

inline constexpr int kWindow = 32;  // chunks whose block numbers a warp holds, one a lane

// Words, so that a warp reads one in one load. An item without keys costs as much as one chunk and has none.
struct Item {
  int32_t first_row;       // of q
  int32_t tokens;          // from first_row on
  int32_t begin, end;      // chunks of the request that some row sees
  int32_t first_position;  // of first_row in the request
  int32_t keys;            // of the request
  int32_t causal;
  int32_t table_low, table_high;  // where the request's row of block_table begins, in elements
  int32_t reserved[7];
};
static_assert(sizeof(Item) == 64);

// Work of a block: `cost` worth of it from chunk `begin` of unit (item, head) on. The block numbers of its first chunks are here too, so that
// the first copy is one load away from the launch.
struct Line {
  Item item;
  int32_t head, begin, cost, item_index;
  int32_t first_line, first_pieces;    // the unit at the begin: the line it begins in, pieces it is cut into (1: whole)
  int32_t last_pieces;                 // the unit at the end, where it begins in this line and goes on in the next
  int32_t unit_cost;                   // of a unit beside its chunks, in chunks
  int32_t table_low, table_high;       // Batch::block_table
  int32_t unowned_begin, unowned_end;  // rows of out that no request owns
  int32_t warps_of_team;               // warps that share this line: all of a block, or 4 of 8
  int32_t reserved_too[3];
  int32_t blocks[kWindow];
};
static_assert(sizeof(Line) == 256);
// Positions of the words above.
enum ItemWord { kFirstRow, kTokens, kItemBegin, kItemEnd, kFirstPosition, kKeys, kIsCausal, kRowLow, kRowHigh };
enum LineWord { kLineHead = 16, kLineBegin, kLineCost, kItemIndex, kFirstLine, kFirstPieces, kLastPieces, kUnitCost };
enum { kTableLow = 24, kTableHigh, kUnownedBegin, kUnownedEnd, kWarpsOfTeam };

struct PlanArgs {
  Batch batch;
  Batch* kept;
  Item* items;          // [max items]
  int64_t* before;      // [max items + 1], cost of the items before
  int32_t* first_item;  // [max_num_reqs + 1]
  Line* lines;          // [teams][ranks]
  Mask mask;
  int min_query, max_query;
  int tokens;     // of an item, at most
  int num_heads;  // units an item
  int ranks;      // blocks of the launch
  int warps;      // of a block
  int chunks_per_block;
  int min_chunks;  // of a piece, where a unit is cut
  int few_chunks;  // of a line, at most, for one team of a block
  int unit_cost;   // in chunks, counted where there are more units than blocks
  int invariant;   // 1: no unit is cut
};

struct DecodeArgs {
  // What a block needs first stands together: a line of the constants that is not there yet costs as much as a load.
  const Line* lines;
  const Item* items;
  cuda::Divisor chunks_per_block;
  int rows, num_heads;
  int depth;      // chunks on their way for a warp
  int slices;     // units a kv head: its query heads are more than a unit's rows
  int invariant;  // 1: sums in an order that depends on the row alone
  Rows q;
  int group;
  int inverse_group;  // of a row: its token is row * inverse_group >> 8
  float softmax_scale, soft_cap;
  Mask mask;
  int scales_per_head;
  const float *k_scale, *v_scale;  // [1] or [num_kv_heads], of 8-bit codes; null: 1
  float* parts;       // [lines][2][rows][head_size + 4]: of a unit that began earlier, that goes on; outputs, maximum, sum
  uint32_t* tickets;  // [lines], zero between calls: pieces done of the unit that goes on from a line
  Rows out;
  float* lse;
  int64_t lse_token_stride, lse_head_stride;
  float lse_factor;
  const float* sinks;
  int out_dtype;
};

}  // namespace anyattn::flash::sm90
