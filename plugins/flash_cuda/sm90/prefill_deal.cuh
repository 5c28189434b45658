// SPDX-License-Identifier: Apache-2.0
// How the Hopper prefill deals works x heads to the blocks of its launch. Included by its schedule, which chooses, by its kernels, and by a
// test that runs it on the host.
#pragma once

#include <cstdint>

namespace anyattn::flash {

// Blocks take works in turn, forth and back over the list that is sorted by length: section by section of heads, heads of a work
// side by side. A section is filled up to whole rounds with nothing, so that the deal stays even.
struct SectionDeal {
  int works, heads, section_heads, rounds;  // rounds a section
  int round = 0, first_head = 0;

  __device__ __forceinline__ SectionDeal(int num_works, int num_heads, int heads_a_section, int blocks)
      : works(num_works), heads(num_heads), section_heads(heads_a_section) {
    rounds = (works * section_heads + blocks - 1) / blocks;
  }
  // The next work of this block, its place in the list, and the head; false once all are dealt.
  __device__ __forceinline__ bool next(int block, int blocks, int& index, int& head) {
    while (works > 0 && first_head < heads) {
      const int place = round & 1 ? blocks - 1 - block : block;
      const int at = round % rounds * blocks + place;
      index = at / section_heads;
      head = first_head + at % section_heads;
      if (++round % rounds == 0) first_head += section_heads;
      if (index < works && head < heads) return true;
    }
    return false;
  }
};

// Into how many sections heads may be cut: `most` is what bytes ask for, fewer share the work better where works are few or uneven.
struct SectionChoices {
  static constexpr int kCount = 8;
  int kv_heads, kv_ratio, most;

  // bytes_a_head: of K and V that all works read; section_bytes: what a section may read.
  __device__ SectionChoices(int all_kv_heads, int ratio, int64_t bytes_a_head, int64_t section_bytes)
      : kv_heads(all_kv_heads), kv_ratio(ratio) {
    const int64_t fit = section_bytes / max(int64_t{1}, bytes_a_head);
    const int most_heads = static_cast<int>(max(int64_t{1}, min(fit, static_cast<int64_t>(kv_heads))));
    most = (kv_heads + most_heads - 1) / most_heads;
  }
  __device__ int section_heads(int choice) const {
    const int sections = choice == kCount - 1 ? most : min(choice + 1, most);
    return (kv_heads + sections - 1) / sections * kv_ratio;
  }
  // By the key tiles of the busiest block: what L2 gains is worth a thirty-second of them.
  __device__ int choose(const int (&busiest)[kCount]) const {
    int least = busiest[0], choice = kCount - 1;
    for (const int tiles : busiest) least = min(least, tiles);
    while (busiest[choice] - least > least / 32) --choice;
    return section_heads(choice);
  }
};

}  // namespace anyattn::flash
