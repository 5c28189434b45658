// SPDX-License-Identifier: Apache-2.0
// The kernels as functions of a class on the host: the same text, with the host's words (host.h). Included by kernels_host.cc, which
// runs them, and by the test that counts what a device's programs are dealt. Tiles have the host's size; plans any.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "anyattn/dtypes.hpp"
#include "kernels/shared.h"

namespace anyattn::portable {

constexpr int kHostRows = 16, kHostKeys = 64, kHostColumns = 256;

#define AA_FN
#define AA_UNROLL
#define AA_UNROLL_FOUR
#define AA_UNROLL_COPIES
#define AA_SHARED
#define AA_TABLE static constexpr
class Programs {
 public:
  Programs(const Config& config, const Tile& cut)
      : cfg(config),
        tile(cut),
        kElementBytes(element_bytes(config)),
        kChunk(16 / kElementBytes),
        kChunksQ(padded_to(config.head_size, 16) / kChunk) {}

#include "host.h"
  Tiles tiles(void* memory) {
    return {this,          static_cast<float*>(memory),
            cfg.kind,      padded_to(cfg.head_size, 16),
            cfg.head_size, cfg.head_size_v,
            tile.columns,  kChunk,
            cfg.latent};
  }
#include "kernels/attend.inl"
#include "kernels/formats.inl"
#include "kernels/memory.inl"
#include "kernels/plan.inl"

 private:
  const Config& cfg;
  const Tile& tile;
  const int kElementBytes, kChunk, kChunksQ;
};
#undef AA_FN
#undef AA_UNROLL
#undef AA_UNROLL_FOUR
#undef AA_UNROLL_COPIES
#undef AA_SHARED
#undef AA_TABLE

}  // namespace anyattn::portable
