// SPDX-License-Identifier: Apache-2.0
// What every verb takes. Included by the verbs and by what opens a runtime for them.
#pragma once

#include <string>

#include "common/json_output.h"

namespace anyattn::tools {

struct CommonOptions {
  std::string config_file;            // --config; empty: ANYATTN_CONFIG, else the default.yaml of the library
  std::string log_level = "warning";  // --log-level, else ANYATTN_LOG_LEVEL; empty: as an engine has it
  JsonOptions json;
};

// The same, where what the configuration says is shown.
inline CommonOptions as_engines(CommonOptions options) {
  options.log_level.clear();
  return options;
}

}  // namespace anyattn::tools
