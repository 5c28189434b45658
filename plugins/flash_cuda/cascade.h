// SPDX-License-Identifier: Apache-2.0
// When a pass of its own over a shared prefix pays: a modelled time against a modelled time. Included by the host side, which leaves
// the pass out where it cannot pay, and by the pass's schedule, which knows the lengths. Launches nothing.
//
// n requests of short queries share p keys. Without the pass each request reads them: n p b bytes, b = bytes of K and V of one token.
// With it they are read once, by tiles of t query tokens: ceil(rows / t) p f operations, f = 4 * tile rows * tile columns * units of
// heads, bound by the matrix unit; then come a second launch, the merge of what blocks were left with, and out read and written again.
#pragma once

#include <algorithm>

#include "params.h"
#include "sm80/work.h"

#ifdef __CUDACC__
#define ANYATTN_FLASH_BOTH __host__ __device__
#else
#define ANYATTN_FLASH_BOTH
#endif

namespace anyattn::flash {

struct CascadeModel {
  float read_us;     // of one shared key, by one request
  float product_us;  // of one shared key, with one tile of query tokens
  float fixed_us;    // launches, the merge
  int tile_tokens;   // query tokens of a tile

  ANYATTN_FLASH_BOTH float without(int requests, int keys) const {
    return read_us * static_cast<float>(requests) * static_cast<float>(keys);
  }
  ANYATTN_FLASH_BOTH float with(int rows, int keys) const {
    const int tiles = (rows + tile_tokens - 1) / tile_tokens;
    return product_us * static_cast<float>(tiles) * static_cast<float>(keys) + fixed_us;
  }
  ANYATTN_FLASH_BOTH bool pays(int requests, int rows, int keys) const {
    return keys >= kSharedStep && with(rows, keys) < without(requests, keys);
  }
};

inline CascadeModel cascade_model(const Device& device, const Problem& problem) {
  // A multiprocessor's share of what decode reads a microsecond, and what the pass multiplies: by architecture.
  struct Rates {
    int minor;
    double bytes, flop;
  };
  constexpr Rates kAmpere[] = {
      {0, 17e3, 1.4e6},   // A100: 1.9 TB/s, 150 TFLOP/s; not measured, two thirds of the data sheet's
      {6, 8e3, 0.7e6},    // GA10x: 600 to 900 GB/s, 50 to 60 TFLOP/s; not measured
      {7, 8e3, 0.7e6},    // Orin; as the row above
      {9, 6.5e3, 0.9e6},  // Ada: 860 to 1,000 GB/s, 120 TFLOP/s; not measured
  };
  Rates rates{0, 34e3, 1.5e6};  // H200: the general path's 4,500 GB/s and 200 TFLOP/s (README)
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
  model.product_us = static_cast<float>(tile_flop / (rates.flop * device.num_multiprocessors));
  model.fixed_us = 12;
  model.tile_tokens = cut.tokens;
  return model;
}

}  // namespace anyattn::flash
