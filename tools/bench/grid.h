// SPDX-License-Identifier: Apache-2.0
// What is measured: problems of models or of heads given, times batches, times places of the cache. Included by bench and timing.
// Asks no backend and takes no memory.
#pragma once

#include <string>
#include <vector>

#include "anyattn/runtime.hpp"
#include "verbs.h"

namespace anyattn::tools::bench {

// One batch of equal requests against one problem.
struct Point {
  std::string heads;  // "32/8/128", "mla 128/512+64", or "MODEL KIND"
  Problem problem;
  double softmax_scale = 1;
  std::string phase;  // decode, prefill, chunk
  uint32_t num_reqs = 1;
  uint32_t query_len = 1;  // rows a request
  uint32_t seq_len = 1;    // keys a request, the rows counted
  bool cold = true;        // 1 GiB lies between two uses of a cache; else one cache again and again
  bool shuffled = false;   // a request's blocks lie in any order; else one behind the other

  double flops() const;         // of scores and P V over visible keys
  double visible_keys() const;  // read at least once, of all requests
};

// In an order that keeps equal problems together. Throws Failure(kExitUsage) for heads or a model that cannot be.
std::vector<Point> make_grid(const BenchOptions& options);

// Threads of "1", "all": numbers without repetition; 0 = all cores.
std::vector<uint32_t> thread_counts(const BenchOptions& options);

}  // namespace anyattn::tools::bench
