// SPDX-License-Identifier: Apache-2.0
#include "common/runtime.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "anyattn/dtypes.hpp"

namespace anyattn::tools {

Runtime open_runtime(const CommonOptions& options, const std::string& backend, uint32_t num_threads) {
  try {
    return Runtime(
        {.config_path = options.config_file, .backend = backend, .log_level = options.log_level, .num_threads = num_threads});
  } catch (const RuntimeError& error) {
    const bool wrong = error.status() == ANYATTN_INVALID_ARGUMENT || error.status() == ANYATTN_NOT_FOUND;
    throw Failure(wrong ? kExitUsage : kExitFailed, error.what());
  }
}

ExitCode exit_code_of(const RuntimeError& error) {
  return error.status() == ANYATTN_INVALID_ARGUMENT ? kExitUsage : kExitFailed;
}

nlohmann::ordered_json parse(const std::string& json) { return nlohmann::ordered_json::parse(json); }

uint32_t dtype_of(const std::string& name, uint32_t fallback) {
  if (name.empty()) return fallback;
  const uint32_t dtype = dtype_of_float_name(name);
  if (dtype == ANYATTN_DTYPE_NONE)
    throw Failure(kExitUsage, fmt::format("--dtype {}: allowed: float32, float16, bfloat16", name));
  return dtype;
}

}  // namespace anyattn::tools
