// SPDX-License-Identifier: Apache-2.0
#include "cache/page_layout.h"

#include <algorithm>
#include <numeric>

#include "anyattn/util.h"

namespace anyattn::cache {
namespace {

constexpr uint64_t kLargestPage = uint64_t{1} << 40;
constexpr uint32_t kMostBlocksTried = 64;   // of one group in a page; beyond it a page pins too much for one held block
constexpr uint64_t kMemoryAlignment = 256;  // promised for every cache base
constexpr double kWasteAccepted = 1.0 / 32;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Most blocks of this group in a page of that size whose strides come out whole; 0 where none do.
uint32_t blocks_in(uint64_t page, const GroupNeed& need, uint64_t block_bytes) {
  for (uint64_t count = std::min<uint64_t>(page / block_bytes, UINT32_MAX / need.ratio); count > 0; --count) {
    if (page % (count * need.ratio * need.alignment) == 0) return static_cast<uint32_t>(count);
    if (page / block_bytes - count > kMostBlocksTried) return 0;
  }
  return 0;
}

}  // namespace

int32_t plan_pages(std::span<const GroupNeed> given, PageLayout* layout, anyattn_error* error) {
  std::vector<GroupNeed> needs(given.begin(), given.end());
  std::vector<uint64_t> layer_bytes, block_bytes;
  uint64_t common_step = 1;  // a page of a multiple of it takes one block of every group
  for (GroupNeed& need : needs) {
    if (need.kernel_block_bytes > kLargestPage / need.num_layers / need.ratio) {
      return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY,
                               "kv pool: %u kernel blocks of %llu bytes in %u layers make a block of more than 2^40 bytes",
                               need.ratio, static_cast<unsigned long long>(need.kernel_block_bytes), need.num_layers);
    }
    need.alignment = static_cast<uint32_t>(std::lcm<uint64_t>(need.alignment, kMemoryAlignment));
    layer_bytes.push_back(round_up(need.kernel_block_bytes, need.alignment));
    block_bytes.push_back(layer_bytes.back() * need.num_layers * need.ratio);
    common_step = std::min(std::lcm(common_step, uint64_t{need.ratio} * need.alignment), kLargestPage);
  }
  const uint64_t largest = *std::max_element(block_bytes.begin(), block_bytes.end());

  std::vector<uint64_t> candidates;
  for (uint64_t m = 1; m <= kMostBlocksTried; ++m) {
    for (const uint64_t bytes : block_bytes) candidates.push_back(m * bytes);
    candidates.push_back(round_up(m * largest, common_step));
  }
  std::sort(candidates.begin(), candidates.end());

  double least_waste = 2;
  for (const uint64_t page : candidates) {
    if (page < largest || page > kLargestPage) continue;
    double waste = 0;
    std::vector<GroupLayout> groups;
    for (size_t g = 0; g < needs.size() && waste < 1; ++g) {
      const uint32_t count = blocks_in(page, needs[g], block_bytes[g]);
      waste = std::max(waste, 1 - static_cast<double>(count) * static_cast<double>(block_bytes[g]) / static_cast<double>(page));
      if (count > 0) groups.push_back({layer_bytes[g], page / count / needs[g].ratio, count});
    }
    if (groups.size() < needs.size() || waste >= least_waste) continue;
    least_waste = waste;
    *layout = {page, groups};
    if (waste <= kWasteAccepted) break;
  }
  if (least_waste > 1) {
    return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY,
                             "kv pool: no page below 2^40 bytes holds whole blocks of every group (largest block %llu bytes); "
                             "choose block sizes with smaller common multiples",
                             static_cast<unsigned long long>(largest));
  }
  return ANYATTN_OK;
}

}  // namespace anyattn::cache
