// SPDX-License-Identifier: Apache-2.0
// The reference against figures worked out apart from it.
#include "anyattn/conformance/reference.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace anyattn::conformance;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One request: rows of q at the end of keys k, v, all dense.
Reference attend(const HeadShape& shape, const RowRules& rules, const std::vector<float>& q, const std::vector<float>& k,
                 const std::vector<float>& v, uint32_t q_dtype = ANYATTN_DTYPE_FLOAT32) {
  const auto q_size = static_cast<size_t>(shape.num_q_heads * shape.head_size);
  const auto k_size = static_cast<size_t>(shape.num_kv_heads * shape.head_size);
  const auto v_size = static_cast<size_t>(shape.num_kv_heads * shape.head_size_v);
  const auto num_keys = static_cast<int64_t>(k.size() / k_size);
  const auto num_rows = static_cast<int64_t>(q.size() / q_size);
  KeyReader reader{
      [&](int64_t key, float* into) { std::copy_n(k.begin() + key * static_cast<int64_t>(k_size), k_size, into); },
      [&](int64_t key, float* into) { std::copy_n(v.begin() + key * static_cast<int64_t>(v_size), v_size, into); }};
  Reference reference;
  for (int64_t row = 0; row < num_rows; ++row) {
    attend_row(shape, rules, num_keys - num_rows + row, num_keys, q.data() + static_cast<size_t>(row) * q_size, reader, q_dtype,
               &reference);
  }
  return reference;
}

void check_figures(const Reference& reference, double sum, double sum_of_abs, double weighted, double sum_of_lse) {
  const Figures figures = figures_of(reference.exact, reference.exact_lse);
  CHECK(figures.sum == doctest::Approx(sum).epsilon(1e-8));
  CHECK(figures.sum_of_abs == doctest::Approx(sum_of_abs).epsilon(1e-8));
  CHECK(figures.weighted == doctest::Approx(weighted).epsilon(1e-8));
  CHECK(figures.sum_of_lse == doctest::Approx(sum_of_lse).epsilon(1e-8));
}

}  // namespace

TEST_CASE("reference_gives_the_figures_of_a_causal_prefill") {
  const HeadShape shape{.num_q_heads = 2, .num_kv_heads = 1, .head_size = 16, .head_size_v = 16};
  RowRules rules{.softmax_scale = 1.0};

  const Reference reference = attend(shape, rules, draw(164, 3 * 32), draw(165, 11 * 16), draw(166, 11 * 16));

  check_figures(reference, -0.009619820, 22.843910867, 1.740627458, 17.443197987);
}

TEST_CASE("reference_gives_zero_and_minus_infinity_to_rows_without_keys") {
  const HeadShape shape{.num_q_heads = 1, .num_kv_heads = 1, .head_size = 8, .head_size_v = 8};

  const Reference reference = attend(shape, {}, draw(161, 5 * 8), draw(162, 3 * 8), draw(163, 3 * 8));

  for (size_t i = 0; i < 16; ++i) CHECK(reference.exact[i] == 0.0);
  CHECK(reference.exact_lse[0] == -kInfinity);
  CHECK(reference.exact_lse[1] == -kInfinity);
  CHECK(reference.exact_lse[2] == doctest::Approx(1.731348265));
  CHECK(reference.exact_lse[3] == doctest::Approx(0.422122813));
  CHECK(reference.exact_lse[4] == doctest::Approx(1.479594627));
}

// Probabilities 3/4 and 1/4: the score -ln 3 is -1.1015625 as bfloat16, and 256 e^-1.1015625 = 85.1 lies nearest the code of 88.
TEST_CASE("naive_of_queries_of_8_bits_rounds_probabilities_to_codes_below_the_largest") {
  const HeadShape shape{.num_q_heads = 1, .num_kv_heads = 1, .head_size = 1, .head_size_v = 1};

  const Reference reference = attend(shape, {}, {1.0f}, {0.0f, -std::log(3.0f)}, {0.0f, 1.0f}, ANYATTN_DTYPE_FLOAT8_E4M3FN);

  CHECK(reference.exact[0] == doctest::Approx(0.25));
  CHECK(reference.naive[0] == doctest::Approx(88.0 / 256.0 / (1.0 + std::exp(-1.1015625))).epsilon(1e-6));
}

TEST_CASE("reference_counts_a_sink_once") {
  const HeadShape shape{.num_q_heads = 4, .num_kv_heads = 2, .head_size = 32, .head_size_v = 32};
  const std::vector<float> sinks{0.5f, -1.0f, 2.0f, 0.0f};
  RowRules rules{.softmax_scale = 0.25, .window_left = 7, .sinks = sinks};

  const Reference with = attend(shape, rules, draw(171, 128), draw(172, 48 * 64), draw(173, 48 * 64));
  rules.sinks = {};
  const Reference without = attend(shape, rules, draw(171, 128), draw(172, 48 * 64), draw(173, 48 * 64));

  check_figures(with, 1.132968921, 16.427143483, -3.873738496, 9.672420783);
  CHECK(figures_of(without.exact, without.exact_lse).sum == doctest::Approx(1.458674019));
}

TEST_CASE("reference_keeps_exactly_w_keys_in_a_window") {
  const HeadShape shape{};
  std::vector<float> v(10);
  for (size_t j = 0; j < v.size(); ++j) v[j] = static_cast<float>(j);
  for (int window = 1; window <= 12; ++window) {
    RowRules rules{.window_left = window - 1};

    const Reference reference = attend(shape, rules, {0.0f}, std::vector<float>(10, 1.0f), v);

    const int visible = std::min(window, 10);
    CHECK(reference.exact[0] == doctest::Approx(9.0 - (visible - 1) / 2.0));
    CHECK(reference.exact_lse[0] == doctest::Approx(std::log(visible)));
  }
}

TEST_CASE("shard_lengths_are_those_of_the_table") {
  struct Line {
    uint32_t world_size, interleave;
    int64_t seq_len;
    std::vector<int64_t> lengths;
  };
  const Line lines[] = {{4, 1, 3, {1, 1, 1, 0}},  {4, 1, 10, {3, 3, 2, 2}}, {4, 2, 3, {2, 1, 0, 0}}, {4, 2, 10, {4, 2, 2, 2}},
                        {4, 2, 17, {5, 4, 4, 4}}, {2, 16, 17, {16, 1}},     {2, 16, 33, {17, 16}},   {3, 4, 10, {4, 4, 2}},
                        {3, 4, 33, {12, 12, 9}},  {4, 1, 0, {0, 0, 0, 0}}};
  for (const Line& line : lines) {
    for (uint32_t rank = 0; rank < line.world_size; ++rank) {
      CHECK(shard_length(line.seq_len, line.world_size, rank, line.interleave) == line.lengths[rank]);
    }
  }
}

TEST_CASE("shards_merge_to_the_unsplit_result") {
  const HeadShape shape{.num_q_heads = 2, .num_kv_heads = 1, .head_size = 16, .head_size_v = 16};
  const auto q = draw(131, 32), k = draw(132, 64 * 16), v = draw(133, 64 * 16);

  std::vector<Reference> parts(4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    RowRules rules{.softmax_scale = 4.0, .cp_world_size = 4, .cp_rank = rank};
    const auto read = [&](const std::vector<float>& from) {
      return [&](int64_t key, float* into) { std::copy_n(from.begin() + position_of_key(rules, key) * 16, 16, into); };
    };
    attend_row(shape, rules, 63, shard_length(64, 4, rank, 1), q.data(), {read(k), read(v)}, ANYATTN_DTYPE_FLOAT32,
               &parts[rank]);
  }
  const Reference merged = merge_parts(parts, 16, ANYATTN_DTYPE_FLOAT32);

  CHECK(figures_of(merged.exact, merged.exact_lse).sum == doctest::Approx(-2.478285388));
  CHECK(merged.exact_lse[0] == doctest::Approx(8.769418370));
  CHECK(merged.exact_lse[1] == doctest::Approx(11.329890791));
}

TEST_CASE("merge_of_empty_states_is_empty_and_a_part_without_keys_is_not_read") {
  struct Line {
    std::vector<double> out, lse;
    double want_out, want_lse;
  };
  const double nan = std::nan("");
  const Line lines[] = {{{2, 6}, {0, 0}, 4, std::log(2.0)},
                        {{2, 6}, {0, std::log(3.0)}, 5, std::log(4.0)},
                        {{2, nan}, {1.5, -kInfinity}, 2, 1.5},
                        {{2, nan}, {1.5, kInfinity}, 2, 1.5},
                        {{nan, nan}, {-kInfinity, -kInfinity}, 0, -kInfinity},
                        {{1, 3}, {88.8, -88.8}, 1, 88.8},
                        {{1, 3}, {10000, 10000}, 2, 10000.693147}};
  for (const Line& line : lines) {
    const State states[] = {{{&line.out[0], 1}, {&line.lse[0], 1}}, {{&line.out[1], 1}, {&line.lse[1], 1}}};
    std::vector<double> out, lse;

    merge_exact(states, 1, &out, &lse);

    CHECK(out[0] == doctest::Approx(line.want_out));
    CHECK((lse[0] == line.want_lse || lse[0] == doctest::Approx(line.want_lse).epsilon(1e-9)));
  }
}

TEST_CASE("comparison_wants_infinity_and_nan_at_the_same_places") {
  const double nan = std::nan("");
  const std::vector<double> exact{1.0, -kInfinity, nan};

  CHECK(compare(std::vector<float>{1.05f, -INFINITY, NAN}, exact, 0.1, "out").ratio == doctest::Approx(0.5));
  CHECK_FALSE(compare(std::vector<float>{1.2f, -INFINITY, NAN}, exact, 0.1, "out").ok());
  CHECK_FALSE(compare(std::vector<float>{1.0f, INFINITY, NAN}, exact, 0.1, "out").ok());
  CHECK_FALSE(compare(std::vector<float>{1.0f, -INFINITY, 0.0f}, exact, 0.1, "out").ok());
  CHECK_FALSE(compare(std::vector<float>{NAN, -INFINITY, NAN}, exact, 0.1, "out").ok());
  CHECK_FALSE(compare(std::vector<float>{1.0f}, exact, 0.1, "out").ok());
}
