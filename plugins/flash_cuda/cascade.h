// SPDX-License-Identifier: Apache-2.0
// When a pass of its own over a shared prefix pays: a modelled time against a modelled time. Included by the host side, which leaves
// the pass out where it cannot pay, and by the pass's schedule, which knows the lengths. Launches nothing.
//
// n requests of short queries share p keys. Without the pass each request reads them, from L2 once one has them: n p b bytes, b = bytes
// of K and V of one token. With it they are read once, by tiles of t query tokens: ceil(rows / t) p f operations, f = 4 * tile rows *
// tile columns * units of heads, bound by the matrix unit; then come two launches more, a unit's begin and end in each block, and for
// each row the merge, out read and written again.
#pragma once

#include <algorithm>

#include "params.h"
#include "sm80/work.h"

namespace anyattn::flash {

struct CascadeModel {
  float read_us;     // of one shared key, by one request
  float product_us;  // of one shared key, with one tile of query tokens
  float fixed_us;    // launches, begin and end of a block's work
  float row_us;      // of a query token: the merge
  int tile_tokens;   // query tokens of a tile

  ANYATTN_FLASH_BOTH float without(int requests, int keys) const {
    return read_us * static_cast<float>(requests) * static_cast<float>(keys);
  }
  ANYATTN_FLASH_BOTH float with(int rows, int keys) const {
    const int tiles = (rows + tile_tokens - 1) / tile_tokens;
    return product_us * static_cast<float>(tiles) * static_cast<float>(keys) + fixed_us + row_us * static_cast<float>(rows);
  }
  ANYATTN_FLASH_BOTH bool pays(int requests, int rows, int keys) const {
    return keys >= kSharedStep && with(rows, keys) < without(requests, keys);
  }
  // Requests and keys beyond what anybody serves; more of both only help.
  bool ever_pays() const { return pays(kMostRequests, kMostRequests, kMostKeys); }
  static constexpr int kMostRequests = 1024, kMostKeys = 1 << 17;
};

// What the model has no rates of, and so must not decide; null: it has them.
inline const char* cascade_unmeasured(const Device& device, const Problem& problem) {
  if (device.arch_major != 9) return "its gain is measured on sm_90 alone";
  return problem.kv_dtype == kE4M3 ? "its gain is not measured over fp8_e4m3" : nullptr;
}

// Of what cascade_unmeasured() lets through.
inline CascadeModel cascade_model(const Device& device, const Problem& problem) {
  // A multiprocessor's share of what decode reads from L2 a microsecond, and what the pass multiplies: H200, fitted to
  // measure/cascade.cu (README).
  constexpr double kReadBytes = 72e3, kFlop = 2.5e6;
  const double token_bytes = 2.0 * problem.num_kv_heads * (problem.head_size + problem.head_size_v);
  const int reads = (problem.group() + 15) / 16;  // decode has 16 rows a unit
  CascadeModel model{};
  model.read_us = static_cast<float>(reads * token_bytes / (kReadBytes * device.num_multiprocessors));
  const sm80::Tile tile = sm80::tile_of(sm80::head_of(std::max(problem.head_size, problem.head_size_v)), true);
  const sm80::Cut cut = sm80::cut_of(tile, problem);
  const double tile_flop = 4.0 * tile.rows * tile.head * cut.head_units;
  model.product_us = static_cast<float>(tile_flop / (kFlop * device.num_multiprocessors));
  model.fixed_us = 20;
  model.row_us = 0.09f;
  model.tile_tokens = cut.tokens;
  return model;
}

}  // namespace anyattn::flash
