// SPDX-License-Identifier: Apache-2.0
// How a warp of the Hopper decode finds its way: along the units of its line, the block numbers of chunks. Included by
// decode_kernel.cuh.
#pragma once

#include "sm90/decode.h"

namespace anyattn::flash::sm90 {

__device__ __forceinline__ int load_word(const void* words, int index) { return __ldg(static_cast<const int*>(words) + index); }
__device__ __forceinline__ int64_t joined(int low, int high) {
  return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low));
}
__device__ __forceinline__ int word_of(int words, int index) { return __shfl_sync(~0u, words, index); }

// A walk over the units of a line. All of a warp's lanes hold the same, `words` apart: lane i holds word i of the line or item.
struct Walk {
  int words, item, head, left, unit_cost;
  int begin, end;  // chunks of the unit now open; equal before the first and where there is none
  int turn;  // the warp whose turn it is at `begin`: warps go on where they stopped, so that none gets more of short units

  __device__ __forceinline__ void begin_line(int line_words) {
    words = line_words;
    item = word_of(words, kItemIndex);
    head = word_of(words, kLineHead);
    left = word_of(words, kLineCost);
    unit_cost = word_of(words, kUnitCost);
    turn = word_of(words, kLineBegin);
    begin = end = 0;
  }
  __device__ __forceinline__ void open(const DecodeArgs& a, int from) {
    turn = a.invariant ? from : turn + end - begin;  // invariant: a chunk's warp follows from its place in the request
    begin = from;
    end = min(word_of(words, kItemEnd), from + left);
    left = end == word_of(words, kItemEnd) ? left - max(1, end - begin) - unit_cost : 0;
  }
  __device__ __forceinline__ void next(const DecodeArgs& a, int lane) {
    if (++head == a.num_heads) {
      head = 0;
      words = load_word(a.items + ++item, lane % 16);
    }
    open(a, word_of(words, kItemBegin));
  }
  __device__ __forceinline__ int first_chunk(int warp, int warps) const {
    return begin + (warp - turn & warps - 1);
  }  // of a team
};

// Block numbers of 32 chunks from `first` on, one a lane, and where in its block the chunk stands.
struct Window {
  int first, block, row;

  __device__ __forceinline__ int place(const DecodeArgs& a, int chunk, int lane) {  // the block's place in the table
    first = chunk;
    const int index = a.chunks_per_block.quotient(chunk + lane);
    row = (chunk + lane - index * a.chunks_per_block.by) * kChunk;
    return index;
  }
  __device__ __forceinline__ void load(const DecodeArgs& a, const int32_t* table, int chunk, int end, int lane) {
    const int index = place(a, chunk, lane);
    block = chunk + lane < end ? __ldg(table + index) : -1;
  }
};

}  // namespace anyattn::flash::sm90
