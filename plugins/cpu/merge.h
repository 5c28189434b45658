// SPDX-License-Identifier: Apache-2.0
// merge_states: joins partial results over disjoint keys by their log-sum-exps. Included by both backends.
#pragma once

#include "anyattn/attention.h"
#include "anyattn/host.hpp"
#include "plan.h"

namespace anyattn::cpu {

inline constexpr uint32_t kMaxStates = 128;

// Bases of parts and result are free; a part with lse -inf (or +inf) is not read; out and lse may be those of a part.
void merge_states(const Host& host, const Plan& plan, const anyattn_merge_args& args);

}  // namespace anyattn::cpu
