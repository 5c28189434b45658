// SPDX-License-Identifier: Apache-2.0
// merge_states: bases, empty parts, in place, many ways, dtypes.
#include <cmath>
#include <limits>

#include "attn_case.h"
#include "doctest/doctest.h"

using namespace anyattn::cpu_test;

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An impl of 2 heads to merge through.
struct Merger {
  Merger() : run(make()) { REQUIRE(run.prepare()); }
  static AttnCase make() {
    AttnCase test;
    test.num_q_heads = test.num_kv_heads = 2;
    test.requests = {{1, 1, true, {}}};
    test.num_workers = 2;
    test.with(ANYATTN_FEATURE_LSE);
    return test;
  }
  int32_t merge(const std::vector<anyattn_state>& states, anyattn_tensor out, anyattn_tensor lse,
                uint32_t base = ANYATTN_LSE_NATURAL) {
    const anyattn_merge_args args{ANYATTN_MERGE_ARGS_SIZE,
                                  base,
                                  static_cast<uint32_t>(states.size()),
                                  sizeof(anyattn_state),
                                  states.data(),
                                  out,
                                  lse,
                                  nullptr};
    return run.backend.merge_states(run.impl, &args, run.text.get());
  }
  AttnRun run;
};

// One row, two heads, `size` equal values a head.
struct Part {
  Part(float out_value, float lse_value, uint32_t dtype = ANYATTN_DTYPE_FLOAT32, int64_t size = 20,
       uint32_t lse_base = ANYATTN_LSE_NATURAL)
      : out({1, 2, size}, dtype), lse({1, 2}, ANYATTN_DTYPE_FLOAT32), base(lse_base) {
    out.set_all(out_value);
    lse.set_all(lse_value);
  }
  anyattn_state state() { return {ANYATTN_STATE_SIZE, base, out.get(), lse.get()}; }
  TestTensor out, lse;
  uint32_t base;
};

}  // namespace

TEST_CASE("merge_gives_the_table_of_two_states_whatever_is_empty") {
  Merger merger;
  struct Row {
    float out_a, lse_a, out_b, lse_b, out, lse;
  };
  for (const Row& row :
       {Row{2, 0, 6, 0, 4, 0.693147f}, Row{2, std::log(3.f), 6, 0, 3, 1.386294f}, Row{2, 1.5f, kNan, kNone, 2, 1.5f},
        Row{kNan, kNone, kNan, kNone, 0, kNone}, Row{1, 88.8f, 3, -88.8f, 1, 88.8f}, Row{1, 10000, 3, 10000, 2, 10000.693147f},
        Row{kNan, -kNone, 5, 1, 5, 1}}) {
    for (const uint32_t dtype : {ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16}) {
      Part a(row.out_a, row.lse_a, dtype), b(row.out_b, row.lse_b, dtype), to(kNan, kNan, dtype);
      REQUIRE(merger.merge({a.state(), b.state()}, to.out.get(), to.lse.get()) == ANYATTN_OK);
      for (const float x : to.out.floats()) CHECK(x == row.out);
      for (const float x : to.lse.floats()) CHECK((x == row.lse || std::abs(x - row.lse) < 1e-5f * (1 + std::abs(row.lse))));
      // In place, into either part.
      REQUIRE(merger.merge({a.state(), b.state()}, b.out.get(), b.lse.get()) == ANYATTN_OK);
      CHECK(b.out.floats() == to.out.floats());
      CHECK(b.lse.floats() == to.lse.floats());
    }
  }
}

TEST_CASE("merge_joins_many_parts_of_different_bases") {
  Merger merger;
  constexpr double kLn2 = 0.6931471805599453;
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<anyattn_state> states;
  double total = 0, weighted = 0;
  for (int i = 0; i < 9; ++i) {
    const bool empty = i % 4 == 3, base2 = i % 2 == 1;
    const double lse = 0.3 * i - 1;
    parts.push_back(std::make_unique<Part>(empty ? kNan : static_cast<float>(i),
                                           empty ? kNone : static_cast<float>(base2 ? lse / kLn2 : lse), ANYATTN_DTYPE_FLOAT32,
                                           20, base2 ? ANYATTN_LSE_BASE2 : ANYATTN_LSE_NATURAL));
    states.push_back(parts.back()->state());
    if (!empty) total += std::exp(lse), weighted += std::exp(lse) * i;
  }
  Part to(kNan, kNan);
  REQUIRE(merger.merge(states, to.out.get(), to.lse.get(), ANYATTN_LSE_BASE2) == ANYATTN_OK);
  for (const float x : to.out.floats()) CHECK(x == doctest::Approx(weighted / total));
  for (const float x : to.lse.floats()) CHECK(x == doctest::Approx(std::log2(total)));
  REQUIRE(merger.merge({states[3], states[7], states[3]}, to.out.get(), {}) == ANYATTN_OK);
  for (const float x : to.out.floats()) CHECK(x == 0);
}

TEST_CASE("merge_refuses_wrong_calls") {
  Merger merger;
  Part a(1, 0), other_size(1, 0, ANYATTN_DTYPE_FLOAT32, 24), other_dtype(1, 0, ANYATTN_DTYPE_FLOAT16),
      other_base(1, 0, ANYATTN_DTYPE_FLOAT32, 20, 7);
  CHECK(merger.merge({}, a.out.get(), a.lse.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(merger.merge({a.state(), other_size.state()}, a.out.get(), a.lse.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(merger.merge({a.state(), other_dtype.state()}, a.out.get(), a.lse.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(merger.merge({a.state(), other_base.state()}, a.out.get(), a.lse.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(merger.merge(std::vector<anyattn_state>(129, a.state()), a.out.get(), a.lse.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(merger.run.text.text).find("num_states 129; allowed: 1 to 128") != std::string::npos);
}
