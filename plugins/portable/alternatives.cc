// SPDX-License-Identifier: Apache-2.0
#include "alternatives.h"

#include <algorithm>

#include "vendor/layout.h"

namespace anyattn::portable {
namespace {

// How an alternative differs in one lane. What cuts rows stays: its operands' places in registers follow from it.
struct Edit {
  const char* words;
  double keys = 1;       // times as many a step
  int stages = 0;        // more tiles in flight
  int blocks = 0;        // more programs a multiprocessor
  double columns = 1;    // times as many of v
  double min_tiles = 1;  // times the least work of a program
  int leave_query = 0;   // 1: q's operands are read again from shared memory
};

constexpr Edit kEdits[] = {
    // Half a tile's wait at the end of short contexts; the row lookups and barriers of a step are paid twice.
    {.words = "half the keys a step", .keys = 0.5},
    {.words = "half the keys a step, one tile more in flight", .keys = 0.5, .stages = 1},
    // Half the steps, where registers hold twice the scores.
    {.words = "twice the keys a step", .keys = 2},
    {.words = "twice the keys a step, one tile less in flight", .keys = 2, .stages = -1},
    // More bytes under way, or more programs in their place: memory that takes longer to answer wants the one or the other.
    {.words = "one tile more in flight", .stages = 1},
    {.words = "one tile less in flight", .stages = -1},
    {.words = "one program more a multiprocessor", .blocks = 1},
    {.words = "one program more a multiprocessor, one tile less in flight", .stages = -1, .blocks = 1},
    {.words = "one program less a multiprocessor", .blocks = -1},
    {.words = "one program less a multiprocessor, one tile more in flight", .stages = 1, .blocks = -1},
    {.words = "q not kept in registers", .leave_query = 1},
    // Smaller accumulators, each key read as often as v has pieces.
    {.words = "half the columns", .columns = 0.5},
    // Fewer cuts of a short context: each costs a merge, and leaves programs idle.
    {.words = "four times the least work of a program", .min_tiles = 4},
    {.words = "16 times the least work of a program", .min_tiles = 16},
};

// False where the lane has no such cut.
bool apply(const Edit& edit, const anyattn_device_facts& facts, Specialisation& spec, int lane) {
  constexpr int kKeysAWarp = 16, kFewestColumns = 64;  // a warp's operand of a product; two such for each of its lanes
  const Config& cfg = spec.cfg;
  Tile& tile = spec.lanes[lane];
  int& blocks = spec.min_blocks[lane];
  const bool cuts_memory = edit.keys != 1 || edit.stages != 0 || edit.blocks != 0;
  if (cuts_memory && kTargetDevice == ANYATTN_DEVICE_CPU) return false;  // one tile of a fixed size a thread
  const bool whole = tile.share || tile.groups || is_flat(cfg, tile);    // a step's keys are one operand there, rows of v whole
  if (whole && (edit.keys != 1 || edit.columns != 1)) return false;
  if (edit.columns != 1 && cfg.rows == kRowsInt4Scaled) return false;       // turned back whole
  if (edit.min_tiles != 1 && (spec.direct || cfg.invariant)) return false;  // never cut
  if (edit.leave_query && !tile.keep_query) return false;

  tile.keys = static_cast<int>(tile.keys * edit.keys);
  tile.stages += edit.stages;
  tile.columns = static_cast<int>(tile.columns * edit.columns);
  tile.min_tiles = static_cast<int>(tile.min_tiles * edit.min_tiles);
  if (edit.leave_query) tile.keep_query = 0;
  blocks += edit.blocks;
  if (tile.keys < kKeysAWarp * tile.warps_n || tile.keys > 128 || blocks < 1) return false;
  if (edit.columns != 1) {
    if (tile.columns < kFewestColumns || tile.columns % row_step(cfg) != 0) return false;
    tile.head_units =
        cfg.num_kv_heads * ((cfg.group + tile.heads - 1) / tile.heads) * ((cfg.head_size_v + tile.columns - 1) / tile.columns);
  }
  if (edit.blocks != 0) tile.slots = std::min(kMaxSlots, static_cast<int>(facts.num_multiprocessors) * blocks);
  return tiles_fit(facts, spec);
}

}  // namespace

std::vector<Alternative> alternatives_of(const anyattn_device_facts& facts, const Specialisation& spec) {
  std::vector<Alternative> all;
  for (int lane = 0; lane < spec.num_lanes; ++lane) {
    const char* of = spec.direct           ? "rows of the step itself: "
                     : spec.num_lanes == 1 ? ""
                     : lane == 0           ? "decode: "
                                           : "prefill: ";
    for (const Edit& edit : kEdits) {
      Alternative one{spec, text(of, edit.words)};
      if (apply(edit, facts, one.spec, lane)) all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace anyattn::portable
