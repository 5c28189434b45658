// SPDX-License-Identifier: Apache-2.0
// What a request says: token ids as a function of trace, request and position. Included by scheduler and layers.
#pragma once

#include "serving/draw.h"
#include "serving/trace.h"

namespace anyattn::tools {

// Tokens of blocks with equal content ids are equal; all others are the request's own, so that a wrongly shared block shows.
struct Content {
  const TraceRequest* trace = nullptr;
  uint64_t seed = 0;
  uint64_t index = 0;  // of the request in the trace

  int32_t token_id(uint32_t position) const {
    const uint32_t block = position / kContentBlockTokens;
    const bool shared = position < trace->prompt_tokens && block < trace->content_blocks.size();
    const uint64_t bits =
        shared ? mix({seed, 1, trace->content_blocks[block], position % kContentBlockTokens}) : mix({seed, 2, index, position});
    return static_cast<int32_t>(bits >> 33);
  }
};

}  // namespace anyattn::tools
