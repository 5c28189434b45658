// SPDX-License-Identifier: Apache-2.0
// The problem, limits and device facts that a case stands for. Included by the kit's runs. Asks no backend.
#ifndef ANYATTN_CONFORMANCE_PROBLEM_H
#define ANYATTN_CONFORMANCE_PROBLEM_H

#include <string>

#include "anyattn/conformance/case.h"
#include "anyattn/device.h"
#include "anyattn/problem.h"

namespace anyattn::conformance {

// A feature's word in texts: "window"; "feature_40" for a bit this kit does not know.
std::string feature_name(uint32_t bit);

// Features of the case's problem as bits; `rank` of its shards (a sink goes with rank 0 only).
uint64_t features_of(const Case& c, uint32_t rank);

bool is_mla(const Case& c);

// Owns what the C struct points to; not copied because the struct points into it.
class Problem {
 public:
  Problem(const Case& c, uint32_t rank);
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const anyattn_problem* get() const { return &problem_; }
  void set_block_size(uint32_t block_size) { problem_.block_size = block_size; }
  anyattn_problem& edit() { return problem_; }
  uint64_t features[2] = {};  // the second word is beyond what this interface version knows

 private:
  std::string kv_cache_dtype_;
  anyattn_problem problem_{};
};

// The case's limits, with what it leaves open derived from its batch.
anyattn_limits limits_of(const Case& c, uint32_t block_size);

anyattn_device_facts cpu_device_facts();

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_PROBLEM_H
