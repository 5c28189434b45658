// SPDX-License-Identifier: Apache-2.0
// How a device cuts the work: one place, a reason a row.
#include <algorithm>
#include <limits>

#include "kernels.h"
#include "vendor/layout.h"
#include ANYATTN_PORTABLE_RUNTIME

namespace anyattn::portable {
namespace {

constexpr int kMostColumns = 256;  // of v in a program: 128 accumulators a thread at 16 rows

void fill_units(const Config& cfg, Tile& tile) {
  tile.heads = std::min(cfg.group, tile.rows);
  tile.tokens = tile.rows / tile.heads;
  tile.head_units =
      cfg.num_kv_heads * ((cfg.group + tile.heads - 1) / tile.heads) * ((cfg.head_size_v + tile.columns - 1) / tile.columns);
}

// As many tiles in flight as fit beside `blocks` programs a multiprocessor; false where not even one does.
bool fit_stages(const Config& cfg, Tile& tile, int shared_bytes_of_all, int most, int blocks) {
  for (tile.stages = most; tile.stages >= 1; --tile.stages)
    if ((shared_bytes(cfg, tile) + 1024) * blocks <= shared_bytes_of_all + 1024) return true;  // 1 KiB a block is the system's
  return false;
}

// Tiles in flight without which a loop does not run: one being filled beside those that a step reads.
int least_stages(const Config& cfg, const Tile& tile) {
  return tile.share || (tile.groups && !cfg.latent) ? 3 : tile.groups ? 2 : 1;
}

// Where not even one tile fits: fewer keys a warp, then rows, columns, warps over keys. What is left may fit nowhere.
void shrink(const Config& cfg, Tile& tile, int shared_bytes_of_all) {
  const int least_keys =
      !cfg.matrix || cfg.kind == kF32 ? 8 : 16;  // of a warp: what its lanes deal out, or a product's operand
  while (!fit_stages(cfg, tile, shared_bytes_of_all, 2, 1)) {
    const int half = padded_to(tile.columns / 2, row_step(cfg));
    if (tile.keys > least_keys * tile.warps_n) {
      tile.keys /= 2;
    } else if (tile.warps_m > 1) {
      tile.warps_m /= 2;
      tile.rows /= 2;
    } else if (tile.columns > 64 && half < tile.columns && cfg.rows != kRowsInt4Scaled) {  // those are turned back whole
      tile.columns = half;
    } else if (tile.warps_n > 1) {
      tile.warps_n /= 2;
      tile.keys /= 2;
    } else {
      return;
    }
  }
}

// A warp covers 16 rows; where they are all there is, four warps share the keys, so that each key is read once.
void decode_tile(const Config& cfg, const anyattn_device_facts& facts, Tile& tile, int& min_blocks) {
  const int shared = static_cast<int>(facts.shared_memory_per_block);
  const bool scalar = !cfg.matrix || cfg.kind == kF32;
  tile.rows = cfg.group <= 16 || scalar ? 16 : cfg.group <= 32 ? 32 : 64;
  tile.warps_m = tile.rows / 16;
  tile.warps_n = 4 / tile.warps_m;
  tile.m_tiles = 1;
  tile.columns = std::min(padded_to(cfg.head_size_v, row_step(cfg)), kMostColumns);
  tile.min_tiles = 1;
  // A cut costs a merge of a few microseconds, an idle program the bytes it does not ask for. H200: whole units of which the
  // busiest program has half a tile more than the mean: int4 64 x 2048 63.0 us (cut 71.1), bfloat16 64 x 500 41.6 (43.0); two tiles
  // more: 64 x 2048 137.8 (138.3), but 256 x 500 158 (153).
  tile.slack = 1;
  tile.cut_tiles = 1;
  min_blocks = 2;
  if (!scalar && tile.warps_n == 4 && cfg.head_size <= 128 && tile.columns <= 128) {
    // H200, 64 x 2048 of head 128: two tiles in flight and q in registers 139 us, three tiles 140; 1 x 8192 19.6 and 20.5.
    // E4M3: four programs a multiprocessor 82 us, three 84. Integer codes: 8 rows, a warp's 32 keys are one product; 8 bits fit
    // three times (83 us; twice with three tiles in flight 81), 4 bits four times (73, so with three).
    const bool converts = facts.arch_major > 8 || (facts.arch_major == 8 && facts.arch_minor >= 9);
    const bool flat = has_row_scales(cfg.rows) && cfg.head_size_v % 8 == 0 &&
                      (cfg.rows != kRowsE4M3Scaled || (converts && cfg.head_size % 32 == 0));
    tile.keys = flat ? 128 : 64;
    if (flat) tile.rows = 8;
    tile.keep_query = code_bits(cfg.rows) == 16;
    const int blocks = code_bits(cfg.rows) == 16 ? 2 : has_row_scales(cfg.rows) && code_bits(cfg.rows) == 8 ? 3 : 4;
    if (fit_stages(cfg, tile, shared, 2, blocks) && tile.stages >= 2) {
      min_blocks = blocks;
      return;
    }
    tile.keep_query = 0;
    tile.rows = 16;
  }
  for (tile.keys = 64; tile.keys >= 32; tile.keys /= 2) {
    if (fit_stages(cfg, tile, shared, 3, 2) && tile.stages >= 2) return;
    min_blocks = 1;
    if (fit_stages(cfg, tile, shared, 3, 1) && (tile.stages >= 2 || tile.keys == 32 || scalar)) return;
    min_blocks = 2;
    if (!scalar && tile.warps_n == 4) break;  // 16 keys a warp is one operand of a product
  }
  tile.keys = std::max(tile.keys, 32);
  min_blocks = 1;
  shrink(cfg, tile, shared);
}

// Whole chunks of 64 columns, on a device whose warp groups multiply.
bool has_group_columns(const Config& cfg, const anyattn_device_facts& facts) {
  return vendor::has_groups(facts) && cfg.matrix && cfg.kind != kF32 && cfg.head_size % 64 == 0 && cfg.head_size_v % 64 == 0;
}

// MLA on warp groups: 64 rows, two groups of half the columns and half the keys' scores each, other warps fetch. H200, 32 x 4096,
// 128 heads: 100 us, records 133 and E4M3 140, where eight warps that share take 229, 332 and 197; at 16 heads, whose rows are a
// quarter of a product, 55, 72 and 88, and 58, 96 and 49.
bool latent_group_tile(const Config& cfg, const anyattn_device_facts& facts, Tile& tile) {
  const bool takes_rows = cfg.rows == cfg.kind || (code_bits(cfg.rows) == 8 && !has_row_scales(cfg.rows));
  if (!has_group_columns(cfg, facts) || !takes_rows || cfg.head_size_v % 128 != 0 || cfg.head_size_v > 512 ||
      cfg.head_size <= cfg.head_size_v)
    return false;
  tile.groups = 1;
  tile.rows = 64;
  tile.warps_m = 4;
  tile.m_tiles = 1;
  tile.warps_n = 2;
  tile.columns = cfg.head_size_v;
  tile.keys = 64;
  tile.min_tiles = 4;  // 1 x 4096: 38 us, 43 with 2, 44 with 8
  tile.slack = 2;
  return fit_stages(cfg, tile, static_cast<int>(facts.shared_memory_per_block), 3, 1) && tile.stages >= least_stages(cfg, tile);
}

// MLA: eight warps, four of which cut a row of keys, make the scores of all keys of a step together, then each multiplies them
// with its own columns, so that a key is read once for up to 64 heads. At most `rows` rows: of DeepSeek's 16-bit ones 227 KiB
// take 64 with 32 keys, 163 KiB 64 with 16, 99 KiB 32 with 16 and four warps. False where the device has no room for any.
bool latent_tile(const Config& cfg, const anyattn_device_facts& facts, Tile& tile, int rows) {
  const bool few_codes = rows <= 16 && code_bits(cfg.rows) == 8 && cfg.rows != kRowsRecord;
  if (!few_codes && latent_group_tile(cfg, facts, tile)) return true;
  for (; rows >= 16; rows /= 2) {
    const int most_keys = rows <= 16 && code_bits(cfg.rows) < 16 ? 64 : 32;  // E4M3, 32 x 4096: 57 and 61 us
    for (int keys = most_keys; keys >= 16; keys /= 2) {
      tile = {};
      tile.rows = rows;
      tile.keys = keys;
      tile.m_tiles = rows < 32 ? 1 : 2;
      tile.warps_m = rows / 16 / tile.m_tiles;
      tile.share = 4;
      tile.warps_n = keys < 32 ? tile.share : 8 / tile.warps_m;
      tile.columns = padded_to(cfg.head_size_v, 8 * row_step(cfg));
      tile.min_tiles = 4;  // H200, 1 x 4096: 16.6 us at 16 heads and 48 at 128 with 4, 29 and 64 with 1, 20 and 51 with 8
      tile.slack = 2;
      if (fit_stages(cfg, tile, static_cast<int>(facts.shared_memory_per_block), 5, 1) &&
          tile.stages >= least_stages(cfg, tile))
        return true;
    }
  }
  return false;
}

// 128 rows a program. Eight warps of 16 rows, twice a multiprocessor: four of 32 rows read less shared memory, but spill and
// leave two warps a scheduler (H200, 1 x 16384 causal: 177 against 209 TFLOP/s).
void prefill_tile(const Config& cfg, const anyattn_device_facts& facts, Tile& tile, int& min_blocks) {
  const int shared = static_cast<int>(facts.shared_memory_per_block);
  tile.warps_n = 1;
  tile.columns = std::min(padded_to(cfg.head_size_v, row_step(cfg)), kMostColumns);
  tile.keys = 64;
  tile.min_tiles = 4;
  tile.slack = 10;  // a cut costs a second start and a merge of 128 rows
  tile.cut_tiles = 10;
  min_blocks = 1;
  if (has_group_columns(cfg, facts) && cfg.rows == cfg.kind && cfg.head_size <= 256 && cfg.head_size_v <= 256) {
    // H200, 1 x 16384 causal: 96 keys 380 TFLOP/s, 64 keys 345, 192 rows of 64 keys 372; 1 x 2048 267, 262, 242.
    tile.groups = tile.m_tiles = 1;
    tile.warps_m = 8;
    tile.rows = 128;
    tile.min_tiles = 3;
    for (tile.keys = 96; tile.keys >= 64; tile.keys -= 32)
      if (fit_stages(cfg, tile, shared, 4, 1) && tile.stages >= least_stages(cfg, tile)) return;
    tile.groups = 0;
    tile.keys = 64;
    tile.min_tiles = 4;
  }
  if (cfg.head_size <= 128 && tile.columns <= 128) {
    tile.warps_m = 8;
    tile.m_tiles = 1;
    tile.rows = 128;
    if (fit_stages(cfg, tile, shared, 2, 2) && tile.stages == 2) min_blocks = 2;
  } else if (cfg.head_size <= 256 && query_parts(cfg) == 1) {
    tile.warps_m = 8;
    tile.m_tiles = 1;
    tile.rows = 128;
  } else {
    tile.warps_m = 4;
    tile.m_tiles = 1;
    tile.rows = 64;
  }
  if (min_blocks == 1) shrink(cfg, tile, shared);
}

}  // namespace

const uint32_t kMaxRotatedRow = kMostColumns;  // the output is turned back where all its columns are

void choose_tiles(const Host& host, const anyattn_device_facts& facts, Specialisation& spec) {
  const bool other_float = spec.cfg.rows <= kBF16 && spec.cfg.rows != spec.cfg.kind;  // has more range or digits than q's kind
  const int lanes = vendor::matrix_lanes(facts);
  const bool other_rows = spec.cfg.kind == kF32 || spec.cfg.rows != spec.cfg.kind;  // mfma.h takes 16-bit rows as they lie
  const bool scalars = other_float || (lanes == 64 && other_rows) || host.option("products", "auto") == "scalar";
  spec.cfg.matrix = scalars ? 0 : lanes;
  const Config& cfg = spec.cfg;
  const bool scalar = !cfg.matrix || cfg.kind == kF32;
  constexpr int kAll = std::numeric_limits<int>::max();
  spec.num_lanes = scalar || spec.direct || (cfg.latent && lanes == 64) ? 1 : 2;
  const int rows = cfg.group <= 16 ? 16 : cfg.group <= 32 ? 32 : 64;
  if (cfg.latent && !scalar && lanes == 32 && latent_tile(cfg, facts, spec.lanes[0], rows) &&
      latent_tile(cfg, facts, spec.lanes[1], 64)) {
    spec.num_lanes = spec.lanes[0].rows < spec.lanes[1].rows ? 2 : 1;
  } else {
    for (Tile& tile : spec.lanes) tile = {};
    if (spec.direct && !scalar)
      prefill_tile(cfg, facts, spec.lanes[0], spec.min_blocks[0]);
    else
      decode_tile(cfg, facts, spec.lanes[0], spec.min_blocks[0]);
    if (spec.num_lanes == 2) prefill_tile(cfg, facts, spec.lanes[1], spec.min_blocks[1]);
  }
  for (int i = 0; i < spec.num_lanes; ++i) {
    Tile& tile = spec.lanes[i];
    fill_units(cfg, tile);
    tile.slots = std::min(kMaxSlots, static_cast<int>(facts.num_multiprocessors) * spec.min_blocks[i]);
    tile.min_query = i == 0 ? 0 : spec.lanes[0].max_query + 1;
    tile.max_query = spec.num_lanes == 2 && i == 0 ? std::max(tile.tokens, 16 / tile.heads) : kAll;
  }
}

bool tiles_fit(const anyattn_device_facts& facts, const Specialisation& spec) {
  for (int i = 0; i < spec.num_lanes; ++i)
    if (spec.lanes[i].stages < least_stages(spec.cfg, spec.lanes[i]) ||
        (shared_bytes(spec.cfg, spec.lanes[i]) + 1024) * spec.min_blocks[i] >
            static_cast<int>(facts.shared_memory_per_block) + 1024)
      return false;
  return true;
}

uint64_t workspace_bytes(const Host&, const Specialisation&) { return 0; }

}  // namespace anyattn::portable
