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
};

inline CascadeModel cascade_model(const Device& device, const Problem& problem) {
  // A multiprocessor's share of what decode reads from L2 a microsecond, and what the pass multiplies: by architecture.
  struct Rates {
    int minor;
    double bytes, flop;
  };
  // Not measured: twice the reads from memory of the data sheet, as on the H200, and two thirds of its products.
  constexpr Rates kAmpere[] = {
      {0, 36e3, 1.4e6},  // A100: 1.9 TB/s, 150 TFLOP/s
      {6, 16e3, 0.7e6},  // GA10x: 600 to 900 GB/s, 50 to 60 TFLOP/s
      {7, 16e3, 0.7e6},  // Orin; as the row above
      {9, 14e3, 0.9e6},  // Ada: 860 to 1,000 GB/s, 120 TFLOP/s
  };
  Rates rates{0, 72e3, 2.5e6};  // H200, fitted to measure/cascade.cu (README)
  if (device.arch_major == 8) {
    rates = kAmpere[0];
    for (const Rates& row : kAmpere)
      if (row.minor <= device.arch_minor) rates = row;
  }
  const double code_bytes = problem.kv_dtype == kE4M3 ? 1 : 2;
  const double token_bytes = code_bytes * problem.num_kv_heads * (problem.head_size + problem.head_size_v);
  const int reads = (problem.group() + 15) / 16;  // decode has 16 rows a unit
  CascadeModel model{};
  model.read_us = static_cast<float>(reads * token_bytes / (rates.bytes * device.num_multiprocessors));
  const sm80::Tile tile = sm80::tile_of(sm80::head_of(std::max(problem.head_size, problem.head_size_v)), true);
  const sm80::Cut cut = sm80::cut_of(tile, problem);
  const double tile_flop = 4.0 * tile.rows * tile.head * cut.head_units;
  const int widening = problem.kv_dtype == kE4M3 ? 2 : 1;  // of codes; not measured, more than decode loses by it
  model.product_us = static_cast<float>(widening * tile_flop / (rates.flop * device.num_multiprocessors));
  model.fixed_us = 20;
  model.row_us = 0.09f;
  model.tile_tokens = cut.tokens;
  return model;
}

}  // namespace anyattn::flash
