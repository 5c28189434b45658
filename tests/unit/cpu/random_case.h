// SPDX-License-Identifier: Apache-2.0
// Random problems and batches over the features CPU_ATTN announces.
#pragma once

#include <vector>

#include "anyattn/conformance/numbers.h"
#include "attn_case.h"

namespace anyattn::cpu_test {

inline AttnCase random_case(uint64_t seed) {
  conformance::SplitMix64 dice(seed);
  const auto one_of = [&](auto... values) {
    const std::vector all{values...};
    return all[dice.below(all.size())];
  };
  const auto chance = [&](uint64_t in) { return dice.below(in) == 0; };
  AttnCase test;
  test.seed = seed;
  const uint32_t group = one_of(1u, 2u, 3u, 4u, 5u, 7u, 8u, 13u, 16u, 71u);
  test.num_kv_heads = group > 16 ? 1 : one_of(1u, 2u, 3u);
  test.num_q_heads = group * test.num_kv_heads;
  test.head_size = one_of(8u, 16u, 24u, 32u, 64u, 72u, 128u);
  test.head_size_v = chance(2) ? test.head_size : one_of(1u, 5u, 16u, 31u, 40u, 80u, 129u);
  test.block_size = one_of(1u, 3u, 8u, 16u, 24u, 64u, 100u);
  test.softmax_scale = one_of(0.1, 0.25, 1.0);
  test.q_dtype = one_of(ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16);
  test.kv_dtype = one_of(test.q_dtype, ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16);
  test.out_dtype = one_of(test.q_dtype, test.q_dtype, ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_BFLOAT16);
  test.spec = static_cast<uint32_t>(dice.below(2));
  test.num_workers = one_of(1u, 2u, 3u, 8u);
  test.padding_rows = one_of(0u, 0u, 3u);
  test.poison = one_of(__builtin_nanf(""), __builtin_inff(), 1e30f);
  if (chance(2)) test.with(ANYATTN_FEATURE_LSE);
  test.lse_base = one_of(ANYATTN_LSE_NATURAL, ANYATTN_LSE_BASE2);
  if (chance(3)) test.with(one_of(ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_PER_REQUEST_CAUSAL));
  if (chance(3)) {
    test.with(ANYATTN_FEATURE_WINDOW);
    test.window_left = one_of(-1, 0, 1, 7, 40, 130);
    test.window_right = one_of(-1, 0, 5, 33);
  }
  if (chance(4)) test.with(ANYATTN_FEATURE_SOFT_CAP);
  if (chance(4)) test.with(one_of(ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SQRT, ANYATTN_FEATURE_ALIBI_SYMMETRIC));
  if (chance(3)) test.with(ANYATTN_FEATURE_SINKS);
  if (chance(5)) test.with(ANYATTN_FEATURE_MM_PREFIX);
  if (chance(6)) test.with(ANYATTN_FEATURE_BATCH_INVARIANT);
  test.ragged = chance(5);
  if (!test.ragged && chance(5)) {
    test.with(one_of(ANYATTN_FEATURE_CP_DECODE, ANYATTN_FEATURE_CP_PREFILL));
    test.cp_world = one_of(2u, 3u, 4u);
    test.cp_rank = static_cast<uint32_t>(dice.below(test.cp_world));
    test.cp_interleave = one_of(1u, 2u, 16u);
  }
  const uint64_t num_reqs = 1 + dice.below(4);
  for (uint64_t r = 0; r < num_reqs; ++r) {
    Request request;
    request.query_len = chance(2) ? 1 : static_cast<int32_t>(1 + dice.below(group > 16 ? 6 : 40));
    request.seq_len =
        chance(8) ? static_cast<int32_t>(dice.below(4)) : request.query_len + static_cast<int32_t>(dice.below(300));
    if (chance(10)) request.seq_len += 1200;
    request.causal = chance(2);
    if (request.seq_len > 8) {
      const auto first = static_cast<int32_t>(dice.below(static_cast<uint64_t>(request.seq_len) - 4));
      request.ranges.push_back({first, first + 3});
      if (chance(2)) request.ranges.push_back({first + 2, request.seq_len - 1});
    }
    test.requests.push_back(request);
  }
  if (chance(6)) test.requests.push_back({2, 0, true, {}});
  return test;
}

}  // namespace anyattn::cpu_test
