// SPDX-License-Identifier: Apache-2.0
// What the host part and the kernels say to each other: the specialisation, the work list, arguments of each kernel.
// Included by both sides; the kernels' copy is compiled at run time, so nothing of a library is included here.
#pragma once

#ifndef AA_INT_TYPES
#include <cstdint>
#endif

namespace anyattn::portable {

enum Kind : int { kF32 = 0, kF16 = 1, kBF16 = 2 };
// How rows of K and V are stored: sdk/ABI.md, "Cache formats"; the numbers of anyattn::Coding. The first three are the kinds.
enum RowFormat : int {
  kRowsE4M3 = 3,
  kRowsE5M2 = 4,
  kRowsInt8Scaled = 5,  // a float32 scale behind each row; so to the 4-bit ones
  kRowsE4M3Scaled = 6,
  kRowsInt4Scaled = 7,  // rotated; the zero point in the scale's low bits
  kRowsRecord = 8       // MLA: 512 E4M3, four scales, 64 bfloat16
};
enum Causality : int { kCausal = 0, kNonCausal = 1, kPerRequest = 2 };
enum Alibi : int { kAlibiNone = 0, kAlibiLinear = 1, kAlibiSqrt = 2, kAlibiSymmetric = 3 };

// A kernel is compiled for exactly this.
struct Config {
  int kind;         // of q, and of new rows of k and v
  int rows;         // format of the cache's rows; the kind where keys are ragged
  int out_kind;     // of out; kRowsE4M3: codes of value / out_scale
  int head_size;    // of q and k
  int head_size_v;  // of v and out
  int latent;       // 1: v is the first head_size_v entries of k, and q is cut there into two tensors
  int group;        // query heads a kv head
  int num_kv_heads;
  int block_size;  // 0: ragged keys
  int causality;
  int window_left, window_right;  // -1: unlimited
  int alibi;
  int sinks;      // 1: a logit per head in the denominator
  int mm_prefix;  // 1: ranges that see each other both ways
  int invariant;  // 1: a unit is never split
  int cp_world, cp_rank, cp_interleave;
  int matrix;      // lanes that multiply a 16-bit tile together: 32 (mma.sync), 64 (MFMA); 0: element by element
  float soft_cap;  // 0: none
};

// How one program cuts the work. Rows are query tokens x query heads of one kv head.
struct Tile {
  int rows;        // of q, 16 * warps_m * m_tiles; 8 where they lie as a block has them
  int keys;        // a step
  int columns;     // of v, a multiple of 16
  int warps_m;     // warps side by side over rows
  int warps_n;     // warps side by side over keys
  int m_tiles;     // tiles of 16 rows a warp
  int share;       // of warps_n, so many cut a row of keys and add up their scores, then all cut the columns; 0: none
  int keep_query;  // 1: q's operands stay in registers
  int stages;      // tiles of keys in flight
  int heads;       // query heads in a unit
  int tokens;      // query tokens in a unit
  int head_units;  // units over all heads and column pieces
  int min_query;   // shortest query this lane takes; 0: all
  int max_query;   // longest
  int slots;       // programs of the launch: the host's affair, it follows from the device's size. Kernels read Lane's teams
  int min_tiles;   // least work of a program
  int slack;       // per cent that the busiest program may do above the mean so that no unit is cut
  int cut_tiles;   // tiles in whose time a unit is cut and merged: so many more may the busiest program do
  int groups;      // 1: groups of four warps multiply 64 rows (wgmma); warps_n are then beside each other over columns
};

// The batch of metadata_update, kept on the device so that a captured launch finds the newest one.
struct alignas(16) BatchView {
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* block_table;
  const int32_t* key_start_loc;
  const uint8_t* causal;
  const int32_t* mm_start;
  const int32_t* mm_ranges;
  int64_t table_stride;
  int32_t num_reqs;
  int32_t num_tokens;
};

// Up to Tile::tokens neighbouring tokens of a request.
struct Item {
  int32_t req, tokens;
  int32_t row, position;       // of the first token: among all of the batch, in its request
  int32_t keys, causal;        // of the request
  int32_t key_begin, key_end;  // local keys that some token sees
  int32_t tiles;
};

// Where a team of programs begins: an item, `team` neighbouring head units of it (number `head` of such), one a program, and a
// tile. It ends where the next team begins. Its programs read the same blocks at the same time. The item comes along, so that
// the first keys are one load of the list away. Units that were begun before lie in the teams from `begun` to `last`. Where
// nothing is cut, tile is kWhole, `last` the number of units of a team, and `order` says in which order they are dealt.
struct alignas(16) Place {
  Item first;
  int32_t item, head, tile, begun, last;
};

// One lane's part of the persistent block.
struct Lane {
  Place* places;        // [teams + 1]
  Item* items;          // [max_items]
  int64_t* prefix;      // [max_items + 1], tiles before an item
  int32_t* order;       // [max_items], the longest first
  int32_t* first_item;  // [max_num_reqs + 1]
  int32_t teams, team;  // programs of the launch: so many teams of so many
};

struct PlanArgs {
  BatchView batch;
  BatchView* kept;  // null: another lane's plan keeps the batch
  Lane lane;
};

// A tensor as [token, head, element], strides in bytes; of a cache: block 0.
struct Rows {
  char* data;
  int64_t token_bytes, head_bytes;
  constexpr char* at(int64_t token, int64_t head) const { return data + token * token_bytes + head * head_bytes; }
};

// Log-sum-exps as [token, head], strides in floats.
struct LseRows {
  float* data;  // null: not wanted
  int64_t token_stride, head_stride;
  double factor;  // what is read times it is natural, what is written is the natural times it
  constexpr float* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

struct AttendArgs {
  const BatchView* kept;  // null: `batch` counts, and units follow from the program's number
  BatchView batch;
  Lane lane;
  float* parts;  // [2 * slots][rows][columns + 4]: running maximum, sum, unscaled output from the fifth on
  Rows q[2];
  Rows k, v;
  int64_t block_bytes;
  uint64_t num_blocks;
  Rows out;
  LseRows lse;
  const float* sinks;     // [num_q_heads]
  const float* slopes;    // [num_q_heads]
  const float* k_scales;  // of the call, one or one a kv head (scale_stride 1); null: 1
  const float* v_scales;
  const float* out_scale;  // [1]; read where out holds codes
  int32_t scale_stride;
  float softmax_scale;
  int32_t blocks_per_req;  // direct units: blocks of rows each request gets
  int32_t causal;          // direct units
};

// A program a token.
struct StoreArgs {
  Rows from[2], to[2];     // k and v, or kv_c and k_pe
  const float* scales[2];  // as AttendArgs::k_scales
  int32_t scale_stride;
  int64_t block_bytes;
  uint64_t num_blocks;
  const int64_t* slots;  // [number of programs]
};

// A program a row.
struct GatherArgs {
  const BatchView* kept;
  const int32_t* row_start;      // [num_reqs + 1]
  const int32_t* context_start;  // [num_reqs]
  int32_t num_reqs;
  Rows from, to[2];    // kv_c and k_pe
  const float* scale;  // [1]; null: 1
  int64_t block_bytes;
  uint64_t num_blocks;
};

// A program a token and head.
constexpr int kMaxStates = 16;
struct MergeArgs {
  Rows parts[kMaxStates];
  LseRows part_lse[kMaxStates];
  int32_t num_states, num_heads, head_size;
  int32_t part_kind, out_kind;
  Rows out;
  LseRows lse;
};

constexpr int kForever = 0x7fffffff, kWhole = -1, kMaxSorted = 1024;  // kForever: a key past every request
constexpr int kMaxRotated = 512;                                      // values of a 4-bit row
constexpr int kRecordLatent = 512, kRecordTile = 128, kRecordScales = 512, kRecordRope = 528, kRecordBytes = 656;

constexpr int padded_to(int n, int step) { return (n + step - 1) / step * step; }
constexpr int element_bytes(const Config& cfg) { return cfg.kind == kF32 ? 4 : 2; }
constexpr int code_bits(int rows) { return rows == kF32 ? 32 : rows <= kBF16 ? 16 : rows == kRowsInt4Scaled ? 4 : 8; }
constexpr bool has_row_scales(int rows) { return rows >= kRowsInt8Scaled && rows <= kRowsInt4Scaled; }
constexpr int code_bytes(const Config& cfg, int size) {
  return cfg.rows == kRowsRecord ? kRecordBytes : size * code_bits(cfg.rows) / 8;
}
constexpr int row_bytes(const Config& cfg, int size) { return code_bytes(cfg, size) + (has_row_scales(cfg.rows) ? 4 : 0); }
// Values that one 32-byte matrix load of K or V holds; tiles are whole ones.
constexpr int row_step(const Config& cfg) { return code_bits(cfg.rows) >= 16 ? 16 : 256 / code_bits(cfg.rows); }

}  // namespace anyattn::portable
