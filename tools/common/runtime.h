// SPDX-License-Identifier: Apache-2.0
// The runtime as verbs open it: from flags, with its statuses read as exit codes. Included by verbs.
// Adds no policy; what a runtime does is in runtime.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "anyattn/runtime.hpp"
#include "common/failure.h"
#include "common/options.h"

namespace anyattn::tools {

// backend: of the flag; empty: environment, then file. A configuration that is wrong or not there is Failure(kExitUsage).
// num_threads 0: all cores.
Runtime open_runtime(const CommonOptions& options, const std::string& backend, uint32_t num_threads = 0);

// kExitUsage where the library blames what was asked, else kExitFailed.
ExitCode exit_code_of(const RuntimeError& error);

// The library's texts: what it hands out is JSON.
nlohmann::ordered_json parse(const std::string& json);

// "float32" -> ANYATTN_DTYPE_FLOAT32; `name` is one that --dtype takes, or empty: `fallback`.
uint32_t dtype_of(const std::string& name, uint32_t fallback);

}  // namespace anyattn::tools
