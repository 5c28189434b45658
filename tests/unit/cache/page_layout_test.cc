// SPDX-License-Identifier: Apache-2.0
#include "cache/page_layout.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using anyattn::cache::GroupNeed;
using anyattn::cache::PageLayout;
using anyattn::cache::plan_pages;

uint64_t block_bytes(const GroupNeed& need) {
  const uint64_t layer = (need.kernel_block_bytes + 255) / 256 * 256;
  return layer * need.num_layers * need.ratio;
}

double worst_waste(const std::vector<GroupNeed>& needs, const PageLayout& layout) {
  double worst = 0;
  for (size_t g = 0; g < needs.size(); ++g) {
    const double used = static_cast<double>(layout.groups[g].blocks_per_page) * static_cast<double>(block_bytes(needs[g]));
    worst = std::max(worst, 1 - used / static_cast<double>(layout.page_bytes));
  }
  return worst;
}

TEST_CASE("layout_of_one_group_is_its_block") {
  PageLayout layout;
  REQUIRE(plan_pages(std::vector<GroupNeed>{{2, 3, 65536, 64}}, &layout, nullptr) == ANYATTN_OK);
  CHECK(layout.page_bytes == 2 * 3 * 65536);
  CHECK(layout.groups[0].blocks_per_page == 1);
  CHECK(layout.groups[0].layer_stride == 65536);
  CHECK(layout.groups[0].kernel_stride == 2 * 65536);
}

TEST_CASE("layout_keeps_strides_whole_and_waste_small_for_unlike_groups") {
  const std::vector<std::vector<GroupNeed>> cases = {
      {{1, 1, 131072, 64}, {1, 1, 131072, 64}},                   // equal
      {{52, 1, 131072, 64}, {10, 1, 131072, 64}},                 // Gemma-3-27B's sliding and full layers
      {{1, 1, 18432, 64}, {1, 1, 65536, 64}},                     // a latent beside keys and values
      {{3, 3, 16384, 4096}, {5, 7, 40960, 64}, {1, 1, 512, 16}},  // three that have little in common
      {{1, 33, 4096, 64}, {7, 2, 100, 16}},                       // bytes that are no multiple of 256
  };
  for (const auto& needs : cases) {
    CAPTURE(needs.size());
    CAPTURE(needs[0].num_layers);
    PageLayout layout;
    REQUIRE(plan_pages(needs, &layout, nullptr) == ANYATTN_OK);
    REQUIRE(layout.groups.size() == needs.size());
    for (size_t g = 0; g < needs.size(); ++g) {
      const auto& group = layout.groups[g];
      CHECK(group.kernel_stride * needs[g].ratio * group.blocks_per_page == layout.page_bytes);
      CHECK(group.kernel_stride % needs[g].alignment == 0);
      CHECK(group.kernel_stride >= needs[g].num_layers * group.layer_stride);
      CHECK(group.layer_stride >= needs[g].kernel_block_bytes);
      CHECK(group.layer_stride % 256 == 0);
    }
    CHECK(worst_waste(needs, layout) < 0.1);
  }
}

TEST_CASE("layout_of_an_absurd_block_is_an_error_with_its_size") {
  PageLayout layout;
  char text[256] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  CHECK(plan_pages(std::vector<GroupNeed>{{1000, 1000, uint64_t{1} << 30, 64}}, &layout, &error) == ANYATTN_OUT_OF_MEMORY);
  CHECK(std::string(text).find("1073741824 bytes in 1000 layers") != std::string::npos);
}

}  // namespace
