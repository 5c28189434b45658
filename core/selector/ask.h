// SPDX-License-Identifier: Apache-2.0
// One backend asked about one problem: its answer, checked for contradictions, and the cache specs it accepts.
// Included by the selector only. Knows no policy.
#pragma once

#include <vector>

#include "selector/selector.h"

namespace anyattn::selector {

struct Answer {
  Verdict verdict = Verdict::kEligible;  // eligible, refused or failed
  std::vector<Reason> reasons;
  anyattn_support_report report{};  // graph_level is a known one
  std::vector<OwnedSpec> specs;     // at report.block_size, best first; empty where keys are ragged
};

// block_size 0 in the problem: the backend's preference stands in report.block_size, and the specs are for it.
Answer ask(const registry::OpenBackend& backend, const OwnedProblem& problem, const anyattn_device_facts& device);

// A finding of the core, not of the backend: id 0, `text` in the hint.
Reason core_reason(std::string field, std::string text);

// Specs of `best` that `other` accepts too, by digest, in best's order.
std::vector<OwnedSpec> common_specs(const std::vector<OwnedSpec>& best, const std::vector<OwnedSpec>& other);

}  // namespace anyattn::selector
