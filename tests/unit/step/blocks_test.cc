// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "anyattn/step.h"

namespace {

TEST_CASE("expand_blocks_gives_the_kernel_blocks_in_order") {
  const int32_t blocks[] = {5, 2};
  std::vector<int32_t> out(6);
  REQUIRE(anyattn_step_expand_blocks(blocks, 2, 48, 16, out.data(), nullptr) == ANYATTN_OK);
  CHECK(out == std::vector<int32_t>{15, 16, 17, 6, 7, 8});
  CHECK(out[50 / 16] == 6);  // token 50 is kernel block 6, slot 2
}

TEST_CASE("expand_blocks_takes_ratios_that_are_no_power_of_two") {
  const int32_t blocks[] = {3, 0, -1};
  std::vector<int32_t> out(99);
  REQUIRE(anyattn_step_expand_blocks(blocks, 3, 528, 16, out.data(), nullptr) == ANYATTN_OK);
  for (int32_t j = 0; j < 33; ++j) {
    CHECK(out[static_cast<size_t>(j)] == 99 + j);
    CHECK(out[static_cast<size_t>(33 + j)] == j);
    CHECK(out[static_cast<size_t>(66 + j)] == -1);
  }
}

TEST_CASE("expand_blocks_refuses_a_broken_ratio_naming_both_sizes") {
  const int32_t blocks[] = {0};
  int32_t out[4];
  char text[256] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  CHECK(anyattn_step_expand_blocks(blocks, 1, 40, 16, out, &error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(text) ==
        "step: expand_blocks: manager block 40 is no whole number of kernel blocks of 16; allowed: multiples of 16");
  CHECK(anyattn_step_expand_blocks(blocks, 1, 8, 16, out, &error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_step_expand_blocks(blocks, 1, 16, 0, out, &error) == ANYATTN_INVALID_ARGUMENT);
}

TEST_CASE("expand_blocks_refuses_ids_beyond_32_bits") {
  const int32_t blocks[] = {INT32_MAX / 2};
  int32_t out[4];
  CHECK(anyattn_step_expand_blocks(blocks, 1, 64, 16, out, nullptr) == ANYATTN_INVALID_ARGUMENT);
}

}  // namespace
