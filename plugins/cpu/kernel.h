// SPDX-License-Identifier: Apache-2.0
// What the baseline part and the kernels compiled once per instruction set say to each other: plain structs, no templates.
// Included by both sides. Holds no decision and no ABI struct. Functions are static: an inline one would be a weak symbol.
#pragma once

#include <stdint.h>

namespace anyattn::cpu {

enum ElementKind : uint32_t { kF32 = 0, kF16 = 1, kBF16 = 2, kE4M3 = 3 };  // the last of outputs only
// How rows of a cache are stored; the kernels read each through a struct of loads (keys-inl.h).
enum RowFormat : uint32_t {
  kRowsF32 = 0,
  kRowsF16 = 1,
  kRowsBF16 = 2,
  kRowsE4M3 = 3,        // one scale for all rows, or a head
  kRowsE5M2 = 4,        // likewise
  kRowsInt8Scaled = 5,  // codes, then a float32 scale
  kRowsE4M3Scaled = 6,  // likewise
  kRowsInt4Scaled = 7,  // two codes a byte, then a float32 scale with the zero point in its low four bits; rotated
  kRowsRecord = 8,      // MLA: 512 E4M3, four float32 scales of 128 of them, 64 bfloat16
  kRowsInt4Of64 = 9,    // 4-bit rows of 64 and 128 values whose query and output are rotated instead: Unit::rotated
  kRowsInt4Of128 = 10,
  kRowFormats = 11
};
enum AlibiKind : uint32_t { kAlibiNone = 0, kAlibiLinear, kAlibiSqrt, kAlibiSymmetric };

constexpr int kTileKeys = 64;    // keys a tile: one running-max update; 64 f32 rows of 128 fill a 32 KiB L1
constexpr int kMaxRows = 128;    // rows (tokens x heads) of a unit
constexpr int kBlockRows = 128;  // rows a unit aims at where heads of a group leave the choice
constexpr int kRowStep = 4;      // rows a register tile takes; row arrays are padded to it

constexpr int kFewRows = 4;    // rows the decode kernel of integer codes takes
constexpr int kStepKeys = 64;  // keys a step of the tile kernels: their V pairs stay in a first-level cache

static constexpr uint32_t padded(uint32_t n, uint32_t step) { return (n + step - 1) / step * step; }
// Row length of f32 scratch arrays: whole vectors of the widest set.
static constexpr uint32_t padded_row(uint32_t n) { return padded(n, 32); }

// Keys l = 0, 1, ... of one request and one kv head. Paged where `table` is set, else dense rows.
struct KeySource {
  const char* k;          // block 0 (paged) or row 0 of the request, at the kv head
  const char* v;          // likewise
  int64_t k_block_bytes;  // from one block to the next
  int64_t v_block_bytes;
  int64_t k_token_bytes;  // from one token to the next inside a block (paged) or of the request
  int64_t v_token_bytes;
  const int32_t* table;  // [blocks of the request], null: dense
  uint64_t num_blocks;   // entries are below it
  uint32_t block_size;
};

// Which positions a shard's local keys stand at; world 1: all of them.
struct Shard {
  uint32_t world;
  uint32_t rank;
  uint32_t interleave;
};

// One piece of work: `tokens` query rows x `heads` query heads of one kv head against keys [key_begin, key_end).
// Row r = token * heads + head. Everything is borrowed for the call.
struct Unit {
  // Query: [tokens, heads, q_size], the last dim in one or two parts (MLA: latent and rope).
  const char* q[2];
  int64_t q_token_bytes[2];
  int64_t q_head_bytes[2];
  uint32_t q_size[2];  // elements of each part; [1] is 0 with one part
  ElementKind q_kind;
  uint32_t tokens;
  uint32_t heads;
  uint32_t head_size_v;

  // Where the keys' format has no kernel of its own: turns one row of `size` elements into float32. Null: the kernel reads rows.
  void (*load_row)(const char* row, uint32_t size, float* to);
  bool rotated;  // keys and values are, and so is q, which then is float32: the output is turned back
  KeySource keys;
  int32_t key_begin;
  int32_t key_end;
  const int32_t* visible_begin;  // [tokens] first visible key, local
  const int32_t* visible_end;    // [tokens] past the last visible key, local; <= begin: none
  Shard shard;
  int64_t first_position;  // of token 0

  float softmax_scale;
  float value_scale;  // of the output: V's where a format has one for all keys, over that of codes. K's is in softmax_scale
  float soft_cap;     // 0: none
  AlibiKind alibi;
  const float* alibi_slopes;  // [heads], with alibi
  const float* sinks;         // [heads], null: none

  // Result: [tokens, heads, head_size_v] and [tokens, heads]; or the state of a split where `part` is set.
  char* out;
  int64_t out_token_bytes;
  int64_t out_head_bytes;
  ElementKind out_kind;
  float* lse;                // null: not wanted
  int64_t lse_token_stride;  // elements
  int64_t lse_head_stride;
  float lse_factor;  // 1 or log2(e)
  float* part;       // part_floats() of them

  char* scratch;  // unit_scratch_bytes() of them, 64-byte aligned
};

// A split's state: running max, sum and accumulators of every row.
static constexpr uint64_t part_floats(uint32_t rows, uint32_t head_size_v) {
  return static_cast<uint64_t>(padded(rows, kRowStep)) * (padded_row(head_size_v) + 2);
}

// Scratch of a unit: query, scores, accumulators, per-row numbers, packed K and V, K rows turned into float32; the larger of the two kernels' needs.
static constexpr uint64_t tile_scratch_bytes(uint32_t rows, uint32_t head_size, uint32_t head_size_v) {
  const uint64_t r = padded(rows, 16);
  const uint64_t d = padded_row(head_size);
  const uint64_t dv = padded_row(head_size_v);
  return r * (4 * dv + 2 * d + 20 + 8 * kStepKeys) + kStepKeys * (2 * d + 2 * dv + 12) + 128;
}
static constexpr uint64_t unit_scratch_bytes(uint32_t rows, uint32_t head_size, uint32_t head_size_v) {
  const uint64_t r = padded(rows, kRowStep);
  const uint64_t d = padded_row(head_size);
  const uint64_t dv = padded_row(head_size_v);
  const uint64_t vectors = 4 * (r * (d + kTileKeys + dv + 16) + kTileKeys * (2 * d + dv + 3));
  const uint64_t tiles = tile_scratch_bytes(rows, head_size, head_size_v);
  return vectors > tiles ? vectors : tiles;
}

// out = sum_i weight_i * part_i of one row of an engine's merge_states; parts with weight 0 are not read.
struct MergeRow {
  const char* const* parts;  // [count]
  const float* weights;      // [count]
  uint32_t count;
  uint32_t size;  // elements a row
  ElementKind part_kind;
  ElementKind out_kind;
  char* out;  // may be one of the parts
};

// One unit: 0, or 1 where a visible table entry does not name a block.
typedef int32_t (*AttendFn)(const Unit* unit);

// Every function of one instruction set.
struct Kernels {
  const char* name;
  const Kernels* base;                // serves what this set leaves null; null: nothing is
  AttendFn attend[kRowFormats];       // any query
  AttendFn attend_bf16[kRowFormats];  // bfloat16 queries only; null where the set has nothing better
  // Joins the parts of one item, `stride` floats apart, into unit->out and lse.
  void (*combine)(const Unit* unit, const float* parts, uint64_t stride, uint32_t count);
  void (*merge_row)(const MergeRow* row);
  void (*convert)(char* to, ElementKind to_kind, const char* from, ElementKind from_kind, uint64_t count);
  // Rows of a cache: from an engine's elements, divided by `scale` where the format has none of its own; and to float32,
  // where the caller multiplies by that scale. Records go through store_record.
  void (*store_row[kRowFormats])(char* row, const char* from, ElementKind kind, uint32_t size, float scale);
  void (*load_row[kRowFormats])(const char* row, uint32_t size, float* to);
  void (*store_record)(char* row, const char* latent, const char* rope, ElementKind kind);
  void (*rotate_row)(float* to, const char* from, ElementKind kind, uint32_t size);
};

extern const Kernels kKernelsPortable;
extern const Kernels kKernelsX86V2;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
extern const Kernels kKernelsAvx512Bf16;
extern const Kernels kKernelsAmxBf16;

}  // namespace anyattn::cpu
