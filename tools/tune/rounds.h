// SPDX-License-Identifier: Apache-2.0
// Backends, or alternatives of one, measured against one another on one batch: rounds in which each is sampled once. Included by
// tune and bench. Prints nothing.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
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

// One that is measured: its name in the answer, and who runs it.
struct Contender {
  std::string name;
  const Runtime* runtime;  // outlives the rounds
  std::string backend;     // a must
};

class Rounds {
 public:
  explicit Rounds(const RoundsOptions& options) : options_(options) {}

  struct Answer {
    std::map<std::string, std::vector<double>> times;  // microseconds a call, one a round, by name
    std::map<std::string, std::string> failed;         // who could not be measured, and why
    bool complete = true;                              // false: Ctrl-C came in between
  };
  // Each is made ready, called until a sample is long enough, then sampled in turn; a later one begins each round. One that fails
  // with what a machine may lack (memory, the problem after all) is among `failed`; anything else throws.
  Answer measure(const std::string& device, const bench::Point& point, const std::vector<Contender>& contenders);

 private:
  const RoundsOptions options_;
  std::map<std::string, bench::Arena> arenas_;  // caches by backend, kept from batch to batch
};

// {fastest_us, median_us, slowest_us} of rounds that are not empty.
nlohmann::ordered_json figures_of(std::vector<double> rounds);
// Of two such: "1.84x, faster in every round".
std::string gain_text(const nlohmann::ordered_json& one, const nlohmann::ordered_json& first);

}  // namespace anyattn::tools
