// SPDX-License-Identifier: Apache-2.0
// Conversions, dispatch, texts, feature names, specs.
#include <array>
#include <cmath>
#include <cstring>

#include "anyattn/conformance/numbers.h"
#include "anyattn/device_status.hpp"
#include "anyattn/dispatch.hpp"
#include "anyattn/dtypes.hpp"
#include "anyattn/kv_cache.hpp"
#include "anyattn/problem.hpp"
#include "doctest/doctest.h"

TEST_CASE("dtypes_convert_every_16_bit_pattern_and_round_to_nearest_even") {
  int wrong = 0;
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float half = anyattn::to_float(anyattn::Float16{bits}), brain = anyattn::to_float(anyattn::BFloat16{bits});
    const float half_expected = anyattn::conformance::float_of_float16(bits),
                brain_expected = anyattn::conformance::float_of_bfloat16(bits);
    wrong += !(half == half_expected || (std::isnan(half) && std::isnan(half_expected)));
    wrong += !(brain == brain_expected || (std::isnan(brain) && std::isnan(brain_expected)));
    if (!std::isnan(half)) wrong += anyattn::from_float<anyattn::Float16>(half).bits != bits;
    if (!std::isnan(brain)) wrong += anyattn::from_float<anyattn::BFloat16>(brain).bits != bits;
  }
  anyattn::conformance::SplitMix64 dice(9);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(dice.next());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) {
      wrong += !std::isnan(anyattn::to_float(anyattn::from_float<anyattn::Float16>(value)));
      wrong += !std::isnan(anyattn::to_float(anyattn::from_float<anyattn::BFloat16>(value)));
      continue;
    }
    wrong += anyattn::from_float<anyattn::Float16>(value).bits != anyattn::conformance::float16_of(value);
    wrong += anyattn::from_float<anyattn::BFloat16>(value).bits != anyattn::conformance::bfloat16_of(value);
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtypes_have_names_and_sizes") {
  CHECK(anyattn::dtype_name(ANYATTN_DTYPE_BFLOAT16) == "bfloat16");
  CHECK(anyattn::dtype_name(ANYATTN_DTYPE(7, 24)) == "dtype(code 7, bits 24, lanes 1)");
  CHECK(anyattn::dtype_bytes(ANYATTN_DTYPE_INT64) == 8);
  CHECK(anyattn::dtype_of_float_name("float16") == ANYATTN_DTYPE_FLOAT16);
  CHECK(anyattn::dtype_of_float_name("fp8") == ANYATTN_DTYPE_NONE);
}

TEST_CASE("dispatch_calls_the_one_constant_that_matches") {
  using Sizes = std::integer_sequence<int, 64, 128, 256>;
  int seen = 0;
  CHECK(anyattn::dispatch(128, Sizes{}, [&](auto size) { seen += std::array<char, decltype(size)::value>().size(); }));
  CHECK(seen == 128);
  CHECK(!anyattn::dispatch(96, Sizes{}, [&](auto) { seen = -1; }));
  CHECK(seen == 128);
}

TEST_CASE("text_joins_strings_and_numbers") {
  CHECK(anyattn::text("a", std::string("b"), 3, -4L, 0.5, uint8_t{7}) == "ab3-40.57");
}

TEST_CASE("features_have_words_and_unknown_ones_a_number") {
  CHECK(anyattn::feature_name(ANYATTN_FEATURE_SPARSE_TOPK) == "sparse_topk");
  CHECK(anyattn::feature_name(ANYATTN_FEATURE_GRAPH) == "graph");
  CHECK(anyattn::feature_name(99) == "feature_99");
}

TEST_CASE("specs_are_built_and_read_whatever_the_plane_stride") {
  anyattn::SpecBuilder builder("HND", 16, 4096, 16);
  builder.plane(ANYATTN_PLANE_K, ANYATTN_DTYPE_FLOAT32, {16, 2, 16}, {64, 1024, 4}, 0);
  builder.plane(ANYATTN_PLANE_V, ANYATTN_DTYPE_FLOAT32, {16, 2, 16}, {64, 1024, 4}, 2048);
  anyattn_kv_cache_spec spec = builder.get();
  CHECK(spec.digest == anyattn_kv_cache_spec_digest(&spec));
  CHECK(anyattn::find_plane(spec, ANYATTN_PLANE_V).byte_offset == 2048);
  CHECK(anyattn::find_plane(spec, ANYATTN_PLANE_V).strides[0] == 4096);
  CHECK_THROWS_AS(anyattn::find_plane(spec, ANYATTN_PLANE_LATENT), anyattn::Error);

  struct Wider {
    anyattn_plane plane;
    uint64_t later;
  };
  const Wider wider[2] = {{spec.planes[0], 1}, {spec.planes[1], 2}};
  anyattn_kv_cache_spec newer = spec;
  newer.planes = &wider[0].plane;
  newer.plane_stride = sizeof(Wider);
  CHECK(anyattn::find_plane(newer, ANYATTN_PLANE_V).byte_offset == 2048);
  CHECK(anyattn_kv_cache_spec_digest(&newer) == spec.digest);
}

TEST_CASE("a_cache_without_blocks_is_refused") {
  alignas(256) static std::byte memory[4096];
  anyattn::SpecBuilder builder("HND", 16, 4096, 16);
  builder.plane(ANYATTN_PLANE_K, ANYATTN_DTYPE_FLOAT32, {16, 2, 16}, {64, 1024, 4}, 0);
  const anyattn_kv_cache_spec spec = builder.get();
  anyattn_cache cache{ANYATTN_CACHE_SIZE, 0, memory, 4096, 1, &spec};
  anyattn::check_cache(cache, spec.digest, 4096, 16);
  cache.num_blocks = 0;
  CHECK_THROWS_WITH(anyattn::check_cache(cache, spec.digest, 4096, 16),
                    "cache.num_blocks is 0; needed: the blocks that base holds, 1 or more");
}

TEST_CASE("a_vendors_error_code_says_whose_fault_it_is") {
  using anyattn::status_of_device_error;
  static_assert(status_of_device_error(0) == ANYATTN_OK);
  CHECK(status_of_device_error(2) == ANYATTN_MEMORY_NOT_NOW);
  CHECK(status_of_device_error(101) == ANYATTN_NOT_FOUND);
  for (const int lost : {214, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
    CHECK(status_of_device_error(lost) == ANYATTN_DEVICE_LOST);
  for (const int capture : {900, 901, 904, 907, 908}) CHECK(status_of_device_error(capture) == ANYATTN_CAPTURE_VIOLATION);
  for (const int other : {1, 400, 701, 720, 899, 909, 999}) CHECK(status_of_device_error(other) == ANYATTN_DEVICE_ERROR);
}
