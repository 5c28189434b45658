// SPDX-License-Identifier: Apache-2.0
// Cache formats against bytes worked out by hand. Sources: float8 of the OCP 8-bit floating point specification 1.0; rows with
// scales, 4-bit rows and records as sdk/ABI.md states them.
#include "anyattn/conformance/cache_format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "anyattn/conformance/numbers.h"
#include "anyattn/kv_cache.h"

using namespace anyattn::conformance;

namespace {

constexpr uint32_t kE4m3 = ANYATTN_DTYPE_FLOAT8_E4M3FN, kE5m2 = ANYATTN_DTYPE_FLOAT8_E5M2;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

std::vector<StoredPiece> encoded(const char* name, RowKind kind, const std::vector<float>& row, float scale = 1.0f) {
  return encode_row(*find_cache_format(name), kind, row, scale, 512);
}

std::string hex(const StoredPiece& piece) {
  std::string text;
  for (const std::byte byte : piece.bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

uint32_t word(const StoredPiece& piece, size_t index = 0) {
  uint32_t value;
  std::memcpy(&value, piece.bytes.data() + index * 4, 4);
  return value;
}

// Largest |read - stored| of `row`, and the bound that half a step gives for it.
float worst(const char* name, const std::vector<float>& row) {
  std::vector<float> read(row);
  through_cache(*find_cache_format(name), RowKind::kK, read, 1.0f);
  float most = 0.0f;
  for (size_t i = 0; i < row.size(); ++i) most = std::max(most, std::fabs(read[i] - row[i]));
  return most;
}

}  // namespace

TEST_CASE("float8_has_the_values_of_the_specification") {
  struct Value {
    uint32_t dtype;
    uint8_t bits;
    float value;
  };
  for (const auto& [dtype, bits, value] : {Value{kE4m3, 0x38, 1.0f},
                                           {kE4m3, 0x7e, 448.0f},
                                           {kE4m3, 0x01, 0x1p-9f},
                                           {kE4m3, 0x08, 0x1p-6f},
                                           {kE4m3, 0xb9, -1.125f},
                                           {kE5m2, 0x3c, 1.0f},
                                           {kE5m2, 0x7b, 57344.0f},
                                           {kE5m2, 0x01, 0x1p-16f},
                                           {kE5m2, 0x04, 0x1p-14f},
                                           {kE5m2, 0xbd, -1.25f}}) {
    CAPTURE(int{bits});
    CHECK(float_of_float8(dtype, bits) == value);
    CHECK(float8_of(dtype, value) == bits);
  }
  CHECK(std::isnan(float_of_float8(kE4m3, 0x7f)));
  CHECK(std::isnan(float_of_float8(kE5m2, 0x7d)));
  CHECK(float_of_float8(kE5m2, 0xfc) == -kInfinity);
}

TEST_CASE("float8_rounds_to_even_saturates_and_keeps_nan") {
  CHECK(float8_of(kE4m3, 1.0625f) == 0x38);    // half way between 1 and 1.125: even below
  CHECK(float8_of(kE4m3, 1.1875f) == 0x3a);    // between 1.125 and 1.25: even above
  CHECK(float8_of(kE4m3, 0x1p-10f) == 0x00);   // half the smallest
  CHECK(float8_of(kE4m3, 0x1.8p-9f) == 0x02);  // 1.5 times the smallest
  CHECK(float8_of(kE4m3, 464.0f) == 0x7e);     // past the largest, and far past
  CHECK(float8_of(kE4m3, -kInfinity) == 0xfe);
  CHECK(float8_of(kE4m3, kNan) == 0x7f);
  CHECK(float8_of(kE4m3, -0.0f) == 0x80);
  CHECK(float8_of(kE5m2, 1.125f) == 0x3c);
  CHECK(float8_of(kE5m2, 1.375f) == 0x3e);
  CHECK(float8_of(kE5m2, 1e30f) == 0x7b);
  CHECK(float8_of(kE5m2, kInfinity) == 0x7b);
  CHECK(float8_of(kE5m2, -kNan) == (std::signbit(-kNan) ? 0xff : 0x7f));
  int wrong = 0;
  for (const uint32_t dtype : {kE4m3, kE5m2})
    for (int bits = 0; bits < 256; ++bits) {
      const float value = float_of_float8(dtype, static_cast<uint8_t>(bits));
      wrong += std::isfinite(value) && float8_of(dtype, value) != bits;
    }
  CHECK(wrong == 0);
}

TEST_CASE("fp8_rows_hold_values_over_the_scale_of_the_call") {
  const auto pieces = encoded("fp8_e4m3", RowKind::kK, {1.0f, -2.0f, 0.5f, 1000.0f}, 2.0f);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].role == ANYATTN_PLANE_K);
  CHECK(hex(pieces[0]) == "30b8287e");  // 0.5, -1, 0.25, 500 -> 448
  CHECK(hex(encoded("fp8", RowKind::kV, {1.0f}, 1.0f)[0]) == "38");
  CHECK(hex(encoded("fp8_e5m2", RowKind::kLatent, {1.0f, -2.0f, 0.5f}, 2.0f)[0]) == "38bc34");
}

TEST_CASE("int8_rows_have_the_codes_of_a_worked_example") {
  // 2.54 / 127 = 0.02; codes 25, -50, 12.5 (half away from zero where float32 makes it a tie), 127.
  const auto pieces = encoded("int8_per_token_head", RowKind::kK, {0.5f, -1.0f, 0.25f, 2.54f});
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[1].role == ANYATTN_PLANE_K_SCALE);
  CHECK(word(pieces[1]) == std::bit_cast<uint32_t>(2.54f / 127.0f));
  const std::string codes = hex(pieces[0]);
  CHECK((codes == "19ce0c7f" || codes == "19ce0d7f"));
  // Exact ties: scale 1, codes 0.5 -> 1, -0.5 -> -1, 1.5 -> 2, 2.5 -> 3, -2.5 -> -3.
  CHECK(hex(encoded("int8_per_token_head", RowKind::kV, {0.5f, -0.5f, 1.5f, 2.5f, -2.5f, -127.0f})[0]) == "01ff0203fd81");
  // A row of zeros: the smallest scale, codes 0.
  const auto zeros = encoded("int8_per_token_head", RowKind::kV, {0.0f, 0.0f});
  CHECK(hex(zeros[0]) == "0000");
  CHECK(word(zeros[1]) == std::bit_cast<uint32_t>(1e-6f));
  // A row with an infinity reads as NaN.
  const auto broken = encoded("int8_per_token_head", RowKind::kV, {1.0f, kInfinity});
  CHECK(hex(broken[0]) == "0000");
  CHECK(word(broken[1]) == 0x7fc00000u);
}

TEST_CASE("int8_scales_are_those_of_the_recipe") {
  const auto k = draw(212, 20 * 2 * 32), v = draw(213, 20 * 2 * 32);
  const auto scale = [](const std::vector<float>& from, size_t head, float factor) {
    std::vector<float> row(from.begin() + static_cast<ptrdiff_t>(head * 32),
                           from.begin() + static_cast<ptrdiff_t>(head * 32 + 32));
    for (float& value : row) value *= factor;
    return std::bit_cast<float>(word(encoded("int8_per_token_head", RowKind::kK, row)[1]));
  };
  CHECK(scale(k, 0, 1) == doctest::Approx(0.007676940).epsilon(1e-6));
  CHECK(scale(k, 1, 1) == doctest::Approx(0.007859550).epsilon(1e-6));
  CHECK(scale(v, 0, 4) == doctest::Approx(0.030612525).epsilon(1e-6));
  CHECK(scale(v, 1, 4) == doctest::Approx(0.028655356).epsilon(1e-6));
}

TEST_CASE("fp8_rows_with_a_scale_reach_448") {
  const auto pieces = encoded("fp8_per_token_head", RowKind::kV, {1.0f, -0.5f, 0.25f, 0.0f});
  CHECK(hex(pieces[0]) == "7ef66e00");  // 448, -224, 112, 0
  CHECK(word(pieces[1]) == std::bit_cast<uint32_t>(1.0f / 448.0f));
}

TEST_CASE("rotation_signs_are_those_of_the_generator") {
  // MT19937 seeded with 0x9E3779B9: bit 23 of a draw set means -1.
  std::string text;
  for (const float sign : rotation_signs(32)) text += sign > 0 ? '+' : '-';
  CHECK(text == "+-++----+--++-+-++--+++-+-+--++-");
}

TEST_CASE("rotation_is_its_own_inverse_up_to_the_size") {
  std::vector<float> row = draw(5, 64), turned(row);
  rotate(turned);
  double before = 0, after = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    before += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    after += static_cast<double>(turned[i]) * static_cast<double>(turned[i]);
  }
  CHECK(after == doctest::Approx(64 * before).epsilon(1e-6));
  rotate_back(turned);
  for (size_t i = 0; i < row.size(); ++i) CHECK(std::fabs(turned[i] - row[i]) <= 1e-6f);
}

TEST_CASE("int4_rows_pack_codes_scale_and_zero_point") {
  // Rotated, the row shall be 0, 1, ..., 15 minus 5: scale 1, zero point 5, codes 0 to 15.
  std::vector<float> row;
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<float>(i - 5));
  rotate_back(row);
  const auto pieces = encoded("int4_per_token_head", RowKind::kK, row);
  CHECK(hex(pieces[0]) == "1032547698badcfe");
  CHECK(word(pieces[1]) == (0x3f800000u | 5u));
  // A scale whose low mantissa bits are set loses them to the zero point; readers use what is left.
  std::vector<float> zeros(16, 0.0f);
  const auto empty = encoded("int4_per_token_head", RowKind::kV, zeros);
  CHECK(hex(empty[0]) == "0000000000000000");
  CHECK(word(empty[1]) == (std::bit_cast<uint32_t>(1e-6f) & ~15u));
  CHECK(worst("int4_per_token_head", zeros) == 0.0f);
}

TEST_CASE("rows_of_sizes_that_a_format_does_not_have_are_refused_with_the_sizes_it_has") {
  const auto refusal = [](const char* name, size_t size, int kv_lora_rank) {
    try {
      encode_row(*find_cache_format(name), RowKind::kLatent, std::vector<float>(size), 1.0f, kv_lora_rank);
    } catch (const std::invalid_argument& refused) {
      return std::string(refused.what());
    }
    return std::string();
  };
  for (const size_t size : {size_t{1}, size_t{24}, size_t{96}, size_t{576}, size_t{8192}})
    CHECK(refusal("int4_per_token_head", size, 0).find("a power of two from 2 to 4096; it is " + std::to_string(size)) !=
          std::string::npos);
  CHECK(refusal("int4_per_token_head", 4096, 0) == "");
  CHECK(refusal("fp8_ds_mla", 128, 96).find("kv_lora_rank 512 and qk_rope_head_dim 64 only; these are 96 and 32") !=
        std::string::npos);
  CHECK(refusal("fp8_ds_mla", 512, 512) != "");
  CHECK(refusal("fp8_ds_mla", 576, 512) == "");
}

TEST_CASE("records_have_656_bytes_in_three_parts") {
  std::vector<float> row(576, 0.0f);
  row[0] = 1.0f;  // tile 0: scale 1/448
  row[1] = -0.5f;
  row[128] = 896.0f;  // tile 1: scale 2
  row[129] = 2.0f;
  row[512] = 1.0f;  // rope
  row[575] = -2.0f;
  const auto pieces = encoded("fp8_ds_mla", RowKind::kLatent, row);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].bytes.size() + pieces[1].bytes.size() + pieces[2].bytes.size() == 656);
  CHECK(hex(pieces[0]).substr(0, 6) == "7ef600");
  CHECK(hex(pieces[0]).substr(256, 6) == "7e3800");
  CHECK(word(pieces[1], 0) == std::bit_cast<uint32_t>(1.0f / 448.0f));
  CHECK(word(pieces[1], 1) == std::bit_cast<uint32_t>(2.0f));
  CHECK(word(pieces[1], 2) == std::bit_cast<uint32_t>(FLT_MIN));  // a tile of zeros
  CHECK(hex(pieces[2]).substr(0, 4) == "803f");
  CHECK(hex(pieces[2]).substr(252, 4) == "00c0");
}

TEST_CASE("reading_back_errs_by_half_a_step_at_most") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::vector<float> row = draw(seed, 128);
    for (float& value : row) value *= static_cast<float>(seed);
    float most = 0.0f;
    for (const float value : row) most = std::max(most, std::fabs(value));
    const float ulps = 1.0f + 0x1p-20f;  // the sums of a float32 division and product
    CHECK(worst("int8_per_token_head", row) <= most / 127.0f / 2.0f * ulps);
    // e4m3: half of the step 32 at the top of the range 448, for each row its own.
    CHECK(worst("fp8_per_token_head", row) <= most / 448.0f * 16.0f * ulps);
    // Each rotated element errs by half a step, 15 steps of truncated scale (2^-19) aside; turned back they average.
    std::vector<float> turned(row);
    rotate(turned);
    const auto [low, high] = std::minmax_element(turned.begin(), turned.end());
    const float step = (*high - *low) / 15.0f;
    CHECK(worst("int4_per_token_head", row) <= step * (0.5f + 15.0f * 0x1p-19f) * ulps);
    CHECK(worst("fp8_e4m3", row) <= std::max(most / 16.0f, 0x1p-10f));
    CHECK(worst("fp8_e5m2", row) <= std::max(most / 8.0f, 0x1p-17f));
  }
}
