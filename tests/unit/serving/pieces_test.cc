// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "serving/content.h"
#include "serving/draw.h"
#include "serving/report.h"
#include "serving/up_projection.h"

namespace {

using namespace anyattn::tools;

TEST_CASE("drawn_values_are_uniform_and_depend_on_key_and_index_only") {
  std::vector<float> values(100000), again(100), other(100000);
  draw_uniform(42, 2, values.size(), values.data());
  draw_uniform(42, 2, again.size(), again.data());
  draw_uniform(43, 2, other.size(), other.data());
  double sum = 0, squares = 0, together = 0;
  float low = 0, high = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += double{values[i]} * values[i];
    together += double{values[i]} * other[i];
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  const auto count = static_cast<double>(values.size());
  CHECK(std::equal(again.begin(), again.end(), values.begin()));
  draw_uniform(42, 2, again.size(), again.data(), 777);
  CHECK(std::equal(again.begin(), again.end(), values.begin() + 777));
  CHECK(std::fabs(sum / count) < 0.02);
  CHECK(squares / count == doctest::Approx(4.0 / 3).epsilon(0.02));
  CHECK(std::fabs(together / count) < 0.02);
  CHECK(low >= -2);
  CHECK(low < -1.99f);
  CHECK(high < 2);
  CHECK(high > 1.99f);
}

TEST_CASE("token_ids_are_equal_exactly_where_content_is") {
  const TraceRequest a{0, 1100, 10, {7, 8, 9}}, b{0, 1100, 10, {7, 8, 11}}, own{0, 1100, 10, {}};
  const Content first{&a, 1, 0}, second{&b, 1, 1}, third{&own, 1, 2}, reseeded{&a, 2, 0};
  std::set<int32_t> seen;
  for (uint32_t p = 0; p < 1110; ++p) {
    CHECK((first.token_id(p) == second.token_id(p)) == (p < 1024));
    CHECK(first.token_id(p) != third.token_id(p));
    CHECK(first.token_id(p) != reseeded.token_id(p));
    CHECK(first.token_id(p) >= 0);
    seen.insert(first.token_id(p));
  }
  CHECK(seen.size() == 1110);
}

TEST_CASE("absorbed_queries_meet_latents_as_expanded_keys_do") {
  constexpr uint32_t kHeads = 3, kRank = 32, kWidth = 16;
  const UpProjection up(99, kHeads, kRank, kWidth);
  std::vector<float> latent(kRank), q(kHeads * kWidth), padded(kRank + kWidth), k(kHeads * (kWidth + 4)),
      absorbed(kHeads * kRank);
  draw_uniform(1, 1, latent.size(), latent.data());
  draw_uniform(2, 1, q.size(), q.data());
  up.expand(latent.data(), padded.data(), 0, 1, k.data(), kWidth + 4);
  up.expand(latent.data(), padded.data(), 1, kHeads - 1, k.data() + kWidth + 4, kWidth + 4);
  up.absorb(q.data(), kWidth, padded.data(), absorbed.data());
  for (uint32_t h = 0; h < kHeads; ++h) {
    double expanded = 0, direct = 0;
    for (uint32_t p = 0; p < kWidth; ++p) expanded += double{q[h * kWidth + p]} * k[h * (kWidth + 4) + p];
    for (uint32_t l = 0; l < kRank; ++l) direct += double{absorbed[h * kRank + l]} * latent[l];
    CHECK(direct == doctest::Approx(expanded).epsilon(1e-5));
    CHECK(expanded != 0);
  }
}

TEST_CASE("percentiles_are_by_nearest_rank") {
  CHECK(percentile({}, 0.5) == 0);
  CHECK(percentile({3}, 0.99) == 3);
  CHECK(percentile({4, 1, 3, 2}, 0.5) == 2);
  CHECK(percentile({4, 1, 3, 2}, 0.9) == 4);
  CHECK(percentile({4, 1, 3, 2}, 0.25) == 1);
}

TEST_CASE("report_has_every_key_that_scripts_rely_on") {
  RunReport report;
  report.kinds.push_back({"full", "CPU_ATTN", "org.anyattn.cpu", "float32", 2, 16, 0.5, 1e9, 2e9});
  report.step_ms = {1, 2, 3};
  report.requests_done = 4;
  report.busy_s = 2;
  report.prefill_tokens = 10;
  report.checks.rows = 9;
  report.checks.worst_error_over_bound = 0.25;
  const nlohmann::ordered_json json = report_json(report);
  CHECK(json.at("requests_done") == 4);
  CHECK(json.at("prefill_tokens_per_s") == 5.0);
  CHECK(json.at("decode_tokens_per_s") == 0.0);
  CHECK(json.at("step_ms").at("p50") == 2.0);
  CHECK(json.at("step_ms").at("p90") == 3.0);
  CHECK(json.at("step_ms").at("p99") == 3.0);
  CHECK(json.at("backends").at(0).at("layer_kind") == "full");
  CHECK(json.at("backends").at(0).at("backend") == "CPU_ATTN");
  CHECK(json.at("backends").at(0).at("layers") == 2);
  CHECK(json.at("backends").at(0).at("gb_per_s") == 4.0);
  CHECK(json.at("checked_rows") == 9);
  CHECK(json.at("worst_error_over_bound") == 0.25);
  const std::string text = report_text(report, Terminal{});
  CHECK(text.find("2 x full") != std::string::npos);
  CHECK(text.find("worst error 0.250 of its bound") != std::string::npos);
}

TEST_CASE("tally_keeps_the_first_failure_and_the_worst_row") {
  CheckTally tally;
  tally.add({0, 0, true, false}, 0.5, "");
  tally.add({0, 0, false, true}, 3, "first");
  tally.add({0, 0, true, true}, 2, "second");
  CHECK(tally.rows == 3);
  CHECK(tally.cached_prefix_rows == 2);
  CHECK(tally.window_edge_rows == 2);
  CHECK(tally.rows_outside == 2);
  CHECK(tally.first_failure == "first");
  CHECK(tally.worst_error_over_bound == 3);
}

}  // namespace
