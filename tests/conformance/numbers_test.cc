// SPDX-License-Identifier: Apache-2.0
#include "anyattn/conformance/numbers.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace anyattn::conformance;

TEST_CASE("data_rule_gives_the_documented_draws") {
  CHECK(SplitMix64(0).next() == UINT64_C(0xE220A8397B1DCDAF));
  const auto values = draw(1, 3);
  CHECK(values[0] == 0.13312304019927979f);
  CHECK(values[1] == 0.49156343936920166f);
  CHECK(values[2] == 0.9420053958892822f);
}

TEST_CASE("float16_round_trips_every_bit_pattern_and_rounds_to_even") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = float_of_float16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    wrong += float16_of(value) != bits;
  }
  CHECK(wrong == 0);
  CHECK(float16_of(1.0f + 0x1p-11f) == 0x3c00);      // a tie goes to the even neighbour below
  CHECK(float16_of(1.0f + 3 * 0x1p-11f) == 0x3c02);  // and above
  CHECK(float16_of(1.0f + 0x1.1p-11f) == 0x3c01);    // past the tie
  CHECK(float16_of(65519.0f) == 0x7bff);
  CHECK(float16_of(65520.0f) == 0x7c00);
  CHECK(float16_of(0x1p-25f) == 0x0000);  // half the smallest step, to even
  CHECK(float16_of(0x1.8p-25f) == 0x0001);
  CHECK(float16_of(-0x1.ff8p-15f) == 0x83ff);  // largest subnormal
  CHECK(float16_of(0x1.ffep-15f) == 0x0400);   // rounds up into the normal range
  CHECK(std::isnan(float_of_float16(float16_of(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("bfloat16_round_trips_every_bit_pattern_and_rounds_to_even") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = float_of_bfloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    wrong += bfloat16_of(value) != bits;
  }
  CHECK(wrong == 0);
  CHECK(bfloat16_of(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(bfloat16_of(1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(bfloat16_of(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(std::isnan(float_of_bfloat16(bfloat16_of(std::numeric_limits<float>::quiet_NaN()))));
}
