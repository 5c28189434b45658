// SPDX-License-Identifier: Apache-2.0
#include "random_batch.h"

#include <algorithm>

namespace anyattn::conformance {

Case random_batch(const Case& c, int index, SplitMix64* generator) {
  Case batch = c;
  batch.random = 0;
  batch.causal.clear();
  if (index == kEmptyBatch) {
    batch.pad_rows = static_cast<int>(std::min(c.limits.num_tokens, 3u));
    return batch;
  }
  const auto& limits = c.limits;
  uint64_t rows_left = limits.num_tokens;
  const auto count = 1 + generator->below(limits.num_reqs);
  for (uint64_t r = 0; r < count; ++r) {
    const auto most = std::min<uint64_t>(limits.query_len, rows_left);
    auto query_len = generator->below(2) ? std::min<uint64_t>(1, most) : generator->below(most + 1);
    const auto least = std::max<uint64_t>(1, static_cast<uint64_t>(c.prefix));
    const auto key_len = generator->below(16) == 0 ? 0 : least + generator->below(limits.seq_len - least + 1);
    if (generator->below(8) != 0) query_len = std::min(query_len, key_len);
    batch.lens.push_back({static_cast<int32_t>(query_len), static_cast<int32_t>(key_len)});
    rows_left -= query_len;
  }
  for (size_t r = 0; !c.causal.empty() && r < batch.lens.size(); ++r) batch.causal.push_back(c.causal[r % c.causal.size()]);
  batch.pad_rows = generator->below(4) == 0 ? static_cast<int>(generator->below(std::min<uint64_t>(rows_left, 3) + 1)) : 0;
  const bool no_rows =
      std::all_of(batch.lens.begin(), batch.lens.end(), [](const RequestLens& lens) { return lens.query_len == 0; });
  if (no_rows && batch.pad_rows == 0) batch.lens[0].query_len = 1;
  if (c.shared_prefix > 0) {
    const auto told = generator->below(3);
    batch.shared_prefix = told == 0 ? 0 : told == 1 ? c.shared_prefix : static_cast<int>(generator->below(c.shared_prefix));
  }
  const uint64_t seed = 1 + generator->below(1u << 20);
  batch.seeds = {seed, seed + 1, seed + 2};
  return batch;
}

}  // namespace anyattn::conformance
