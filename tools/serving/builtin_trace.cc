// SPDX-License-Identifier: Apache-2.0
#include "serving/builtin_trace.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

#include "common/failure.h"
#include "serving/draw.h"

namespace anyattn::tools {
namespace {

struct Percentile {
  double share;  // of requests that are no longer
  double tokens;
};

struct Workload {
  const char* name;
  Percentile prompt[5];
  Percentile output[5];
  double requests_per_s;
};

// Smallest, p50, p90, p99, largest of the two public traces, and their mean rate: 19,366 requests in 58 minutes, 8,819 in 57.
constexpr Workload kWorkloads[] = {
    {"chat",
     {{0, 2}, {0.5, 1020}, {0.9, 2735}, {0.99, 4142}, {1, 14050}},
     {{0, 7}, {0.5, 129}, {0.9, 424}, {0.99, 601}, {1, 1000}},
     5.56},
    {"code",
     {{0, 3}, {0.5, 1469}, {0.9, 5194}, {0.99, 7436}, {1, 7437}},
     {{0, 6}, {0.5, 13}, {0.9, 55}, {0.99, 252}, {1, 1899}},
     2.58},
};

// The inverse of the distribution function, straight in the logarithm between the published points.
uint32_t tokens_at(std::span<const Percentile> points, double share) {
  size_t i = 1;
  while (i + 1 < points.size() && share > points[i].share) ++i;
  const Percentile &low = points[i - 1], &high = points[i];
  const double part = (share - low.share) / (high.share - low.share);
  return static_cast<uint32_t>(std::lround(low.tokens * std::pow(high.tokens / low.tokens, part)));
}

}  // namespace

Trace builtin_trace(const std::string& name, uint64_t seed, uint32_t num_requests) {
  for (const Workload& workload : kWorkloads) {
    if (name != workload.name) continue;
    Trace trace{"builtin:" + name, {}};
    double clock_s = 0;
    for (uint32_t i = 0; i < num_requests; ++i) {
      const auto share = [&](uint64_t what) { return unit_interval(mix({seed, i, what})); };
      trace.requests.push_back({clock_s, tokens_at(workload.prompt, share(1)), tokens_at(workload.output, share(2)), {}});
      clock_s += -std::log(1 - share(3)) / workload.requests_per_s;
    }
    return trace;
  }
  throw Failure(kExitUsage, fmt::format("--trace builtin:{}: allowed: builtin:chat, builtin:code", name));
}

}  // namespace anyattn::tools
