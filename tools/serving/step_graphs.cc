// SPDX-License-Identifier: Apache-2.0
#include "serving/step_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "common/failure.h"

namespace anyattn::tools {
namespace {

anyattn_limits narrowed(const anyattn_limits& limits, uint32_t max_tokens, uint32_t max_query_len) {
  anyattn_limits own = limits;
  own.max_num_tokens = max_tokens;
  own.max_query_len = max_query_len;
  own.max_num_reqs = std::min(own.max_num_reqs, max_tokens);
  return own;
}

}  // namespace

StepGraphs::StepGraphs(const KindSpec& spec, const LayerOptions& options, uint32_t max_tokens, uint32_t max_query_len,
                       uint64_t spec_digest)
    : limits_(narrowed(options.limits, max_tokens, max_query_len)),
      group_(make_group(spec, options, limits_, MetadataMode::kGraphCapture)) {
  const anyattn_group_info info = group_.info();
  if (info.spec->digest != spec_digest) {
    throw Failure(kExitFailed, fmt::format("{}: {} answers the same problem with another cache in graph mode; try --graphs off",
                                           spec.label, info.backend));
  }
}

bool StepGraphs::takes(const StepBatch& batch) const {
  return batch.num_tokens() <= limits_.max_num_tokens && batch.max_query_len() <= limits_.max_query_len &&
         batch.rows().size() <= limits_.max_num_reqs;
}

uint32_t StepGraphs::rows_for(uint32_t num_tokens) const { return std::min(std::bit_ceil(num_tokens), limits_.max_num_tokens); }

}  // namespace anyattn::tools
