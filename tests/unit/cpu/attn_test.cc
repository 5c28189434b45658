// SPDX-License-Identifier: Apache-2.0
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
