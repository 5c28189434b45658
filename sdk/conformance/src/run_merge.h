// SPDX-License-Identifier: Apache-2.0
// Merging partial results through a backend's merge_states. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_RUN_MERGE_H
#define ANYATTN_CONFORMANCE_RUN_MERGE_H

#include <vector>

#include "outputs.h"
#include "session.h"

namespace anyattn::conformance {

// Merges parts whose lse stand in `base` into one, lse in `base`. The result goes to tensors of its own.
Outputs merge_outputs(Session& session, const std::vector<Outputs>& parts, int64_t heads, int64_t head_size, uint32_t dtype,
                      uint32_t base);

// A merge case: the table of known merges, then random parts with empty ones among them, apart and in place, in every base
// that the report lists.
void run_merge(const Subject& subject, const Case& c, CaseResult* result);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUN_MERGE_H
