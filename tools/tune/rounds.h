// SPDX-License-Identifier: Apache-2.0
// Backends measured against one another on one batch: rounds in which each is sampled once. Included by tune. Prints nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/grid.h"
#include "bench/workload.h"

namespace anyattn::tools {

struct RoundsOptions {
  uint64_t cold_bytes = 0;
  uint32_t rounds = 9;
  double min_time_s = 0.02;
};

class Rounds {
 public:
  // runtime outlives it.
  Rounds(const Runtime& runtime, const RoundsOptions& options) : runtime_(runtime), options_(options) {}

  struct Answer {
    std::map<std::string, std::vector<double>> times;  // microseconds a call, one a round, by backend
    std::map<std::string, std::string> failed;         // backends that could not be measured, and why
    bool complete = true;                              // false: Ctrl-C came in between
  };
  // Each backend is made ready, called until a sample is long enough, then sampled in turn; a later one begins each round. A
  // backend that fails with what a machine may lack (memory, the problem after all) is among `failed`; anything else throws.
  Answer measure(const std::string& device, const bench::Point& point, const std::vector<std::string>& backends);

 private:
  const Runtime& runtime_;
  const RoundsOptions options_;
  std::map<std::string, bench::Arena> arenas_;  // caches by backend, kept from batch to batch
};

}  // namespace anyattn::tools
