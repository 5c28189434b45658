// SPDX-License-Identifier: Apache-2.0
// Workloads that need no file: lengths and arrivals drawn from published percentiles. Included by trace.
#pragma once

#include "serving/trace.h"

namespace anyattn::tools {

// chat, code: the Azure LLM inference traces of 2023 (Splitwise, ISCA 2024). Deterministic in `seed`. Throws
// Failure(kExitUsage) for another name.
Trace builtin_trace(const std::string& name, uint64_t seed, uint32_t num_requests);

}  // namespace anyattn::tools
