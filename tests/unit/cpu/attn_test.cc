// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "attn_case.h"
#include "doctest/doctest.h"
#include "random_case.h"

using namespace anyattn::cpu_test;

namespace {

void passes(const AttnCase& test) {
  const AttnResult result = run_case(test);
  CHECK_MESSAGE(result.failure.empty(), result.failure << "\n  " << test.describe());
}

}  // namespace

TEST_CASE("attn_float32_decode_and_prefill_of_the_small_model") {
  for (const std::string& isa : runnable_isas()) {
    AttnCase test;
    test.isa = isa;
    test.num_q_heads = 8;
    test.num_kv_heads = 4;
    test.head_size = test.head_size_v = 8;
    test.requests = {{1, 1, true, {}}, {1, 200, true, {}}, {37, 37, true, {}}, {5, 90, true, {}}};
    test.with(ANYATTN_FEATURE_LSE);
    passes(test);
    test.amplitude = 20;  // logits in the hundreds
    passes(test);
  }
}

TEST_CASE("attn_random_problems_stay_within_the_bound_on_every_instruction_set") {
  const std::vector<std::string> isas = runnable_isas();
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    AttnCase test = random_case(seed);
    test.isa = isas[seed % isas.size()];
    passes(test);
  }
}

TEST_CASE("attn_random_bfloat16_problems_stay_within_the_bound_on_dot_and_tile_instructions") {
  const std::vector<std::string> isas = runnable_isas();
  for (const char* isa : {"amx_bf16", "avx512_bf16"}) {
    if (std::find(isas.begin(), isas.end(), isa) == isas.end()) {
      MESSAGE("this machine does not run " << isa);
      continue;
    }
    for (uint64_t seed = 1000; seed < 1060; ++seed) {
      AttnCase test = random_case(seed);
      test.isa = isa;
      test.q_dtype = test.kv_dtype = ANYATTN_DTYPE_BFLOAT16;
      passes(test);
    }
  }
}

// One token and up to four heads a kv head of 64 or 128 take a kernel of their own on tiles.
TEST_CASE("attn_random_decode_of_few_bfloat16_heads_stays_within_the_bound_on_tiles") {
  const std::vector<std::string> isas = runnable_isas();
  if (std::find(isas.begin(), isas.end(), "amx_bf16") == isas.end()) {
    MESSAGE("this machine does not run amx_bf16");
    return;
  }
  for (uint64_t seed = 2000; seed < 2100; ++seed) {
    AttnCase test = random_case(seed);
    test.isa = "amx_bf16";
    test.q_dtype = test.kv_dtype = ANYATTN_DTYPE_BFLOAT16;
    test.num_q_heads = test.num_kv_heads * static_cast<uint32_t>(1 + seed % 4);
    test.head_size = test.head_size_v = seed % 8 < 4 ? 64 : 128;
    for (Request& request : test.requests) request = {1, request.seq_len, request.causal, {}};
    passes(test);
  }
}

TEST_CASE("attn_decoded_value_that_is_not_finite_stays_in_its_dim") {
  for (const std::string& isa : runnable_isas()) {
    for (const uint32_t bits : {0x7fc0u, 0x7f80u}) {
      AttnCase test;
      test.isa = isa;
      test.q_dtype = test.kv_dtype = test.out_dtype = ANYATTN_DTYPE_BFLOAT16;
      test.num_kv_heads = 1;
      test.head_size = test.head_size_v = 64;
      test.requests = {{1, 150, true, {}}};
      AttnRun run(test);
      REQUIRE(run.prepare());
      for (const int64_t dim : {6, 41})
        std::memcpy(static_cast<char*>(run.v.get().data) + (run.v.get().strides[0] * 45 + dim) * 2, &bits, 2);
      REQUIRE(run.store());
      REQUIRE(run.update());
      REQUIRE(run.forward());
      for (size_t i = 0; i < run.result.out.size(); ++i)
        CHECK_MESSAGE(std::isfinite(run.result.out[i]) != (i % 64 == 6 || i % 64 == 41), isa << " out[" << i << "]");
    }
  }
}

TEST_CASE("attn_a_value_that_is_not_finite_stays_with_the_rows_that_see_it") {
  for (const std::string& isa : runnable_isas()) {
    for (const float value : {__builtin_nanf(""), __builtin_inff()}) {
      AttnCase test;
      test.isa = isa;
      test.q_dtype = test.kv_dtype = test.out_dtype = ANYATTN_DTYPE_BFLOAT16;
      test.num_q_heads = 4, test.num_kv_heads = 1;
      test.requests = {{10, 50, true, {}}};
      AttnRun run(test);
      REQUIRE(run.prepare());
      auto* v = static_cast<char*>(run.v.get().data) + run.v.get().strides[0] * 45 * 2;  // seen from row 5 on
      const uint32_t bits = std::isnan(value) ? 0x7fc0 : 0x7f80;
      std::memcpy(v, &bits, 2);
      REQUIRE(run.store());
      REQUIRE(run.update());
      REQUIRE(run.forward());
      const size_t row = size_t{test.num_q_heads} * test.head_size_v;
      for (size_t i = 0; i < run.result.out.size(); ++i) {
        const bool touched = i / row >= 5 && i % test.head_size_v == 0;
        CHECK_MESSAGE(std::isfinite(run.result.out[i]) != touched, isa << " out[" << i << "]");
      }
    }
  }
}
