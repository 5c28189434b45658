// SPDX-License-Identifier: Apache-2.0
// Rows recomputed on several threads: the numbers of one.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "serving/layer_kind.h"

namespace {

using namespace anyattn::tools;
namespace conformance = anyattn::conformance;

TEST_CASE("reference_row_has_the_same_numbers_however_many_threads_share_it") {
  constexpr int kKeys = 37, kSize = 8;
  struct Heads {
    int q, kv;
  };
  for (const Heads heads : {Heads{8, 2}, Heads{6, 6}, Heads{7, 1}, Heads{12, 3}}) {
    const conformance::HeadShape shape{heads.q, heads.kv, kSize, kSize};
    const auto q_heads = static_cast<size_t>(heads.q);
    std::vector<float> q(q_heads * kSize), slopes(q_heads), sinks(q_heads);
    draw_uniform(1, 1, q.size(), q.data());
    draw_uniform(2, 1, slopes.size(), slopes.data());
    draw_uniform(3, 1, sinks.size(), sinks.data());
    conformance::RowRules rules;
    rules.softmax_scale = 0.5;
    rules.alibi = conformance::Alibi::kLinear;
    rules.alibi_slopes = slopes;
    rules.sinks = sinks;
    const auto keys = [](uint32_t first, uint32_t count) {
      const auto draw = [first, count](uint64_t what) {
        return [=](int64_t key, float* into) {
          draw_uniform(mix({what, static_cast<uint64_t>(key)}), 1, size_t{count} * kSize, into, size_t{first} * kSize);
        };
      };
      return conformance::KeyReader{draw(4), draw(5)};
    };
    conformance::Reference whole;
    conformance::attend_row(shape, rules, kKeys - 1, kKeys, q.data(), keys(0, static_cast<uint32_t>(heads.kv)),
                            ANYATTN_DTYPE_BFLOAT16, &whole);
    for (const uint32_t threads : {1u, 2u, 5u, 16u}) {
      CAPTURE(heads.q);
      CAPTURE(threads);
      const anyattn::Runtime runtime({std::string(ANYATTN_BINARY_DIR) + "/config/default.yaml", "", "error", threads});
      const conformance::Reference row =
          reference_row(runtime, shape, rules, kKeys - 1, kKeys, q.data(), keys, ANYATTN_DTYPE_BFLOAT16);
      CHECK(row.exact == whole.exact);
      CHECK(row.naive == whole.naive);
      CHECK(row.exact_lse == whole.exact_lse);
      CHECK(row.naive_lse == whole.naive_lse);
      CHECK(row.max_score == whole.max_score);
      CHECK(row.max_value == whole.max_value);
    }
  }
}

}  // namespace
