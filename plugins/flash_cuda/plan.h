// SPDX-License-Identifier: Apache-2.0
// The one decision: what a problem needs, whether it is done here, and which families of kernels do it. Stands behind supports,
// memory and the calls alike.
#pragma once

#include <algorithm>
#include <string>

#include "anyattn/host.hpp"
#include "anyattn/kv_planes.hpp"
#include "anyattn/problem.hpp"
#include "params.h"

namespace anyattn::flash {

inline constexpr int kMaxLanes = 2;

struct Plan {
  uint64_t features = 0;  // word 0
  bool ragged = false;
  uint32_t q_dtype = 0, out_dtype = 0;  // ANYATTN_DTYPE_*
  uint32_t new_kv_dtype = 0;            // of the rows to store, and of ragged ones
  PlainCache cache{};                   // where keys are paged
  Problem problem{};                    // as the kernels see it; head_major is decided by the spec
  Device device{};
  // A lane a family: the first takes queries up to longest[0], the second longer ones.
  int num_lanes = 0;
  const Family* families[kMaxLanes] = {};
  int longest[kMaxLanes] = {};
  // The pass over a shared prefix; null: none, for the reason given.
  const Family* cascade = nullptr;
  const char* no_cascade = nullptr;
  bool always_cascade = false;  // whatever the model says: for tests and comparisons

  bool has(uint32_t feature) const { return ((features >> feature) & 1u) != 0; }
  bool quantised_query() const { return has(ANYATTN_FEATURE_QUANTISED_QUERY); }
  Lane lane(int i, const Limits& limits) const {
    return {problem, device, limits, i == 0 ? 0 : longest[i - 1] + 1, longest[i]};
  }
  Lane cascade_lane(const Limits& limits) const {
    const int both = std::min(longest[0], cascade->longest_query(device, problem));  // rows of the first lane alone
    return {problem, device, limits, 1, both};
  }
};

// Fills `plan`, or names every reason against it. True without reasons.
bool choose_plan(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                 Plan& plan);

// The same for impl_create: throws UNSUPPORTED with the reasons in one sentence.
Plan require_plan(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem);

// Which families a problem gets on a device: a function of both and of the option `kernels` alone. Called again when the spec
// has said how blocks lie.
void choose_families(const Host& host, Plan& plan);

void fill_report(const Plan& plan, anyattn_support_report& report);

// "sm90_decode for queries up to 4, sm80_prefill for longer ones; sm90_prefill needs scores without ALiBi".
std::string describe_kernels(const Plan& plan);

// From how many requests that share a prefix on a pass over it pays, or why there is none.
std::string describe_cascade(const Plan& plan);

Limits limits_of(const anyattn_limits& limits);

}  // namespace anyattn::flash
