// SPDX-License-Identifier: Apache-2.0
// What the runtime itself adds to a call, seen on a backend that computes nothing. Included by bench.
#pragma once

#include <string>
#include <vector>

#include "bench/timing.h"
#include "common/options.h"

namespace anyattn::tools::bench {

struct OwnCost {
  std::string call;   // update, kv_cache_update, forward
  double through_ns;  // through the runtime, on the plugin's table, and the difference: medians over the pairs
  double direct_ns;
  double own_ns;
};

std::vector<OwnCost> measure_own_costs(const CommonOptions& common, const TimingOptions& options);

}  // namespace anyattn::tools::bench
