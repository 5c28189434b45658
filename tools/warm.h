// SPDX-License-Identifier: Apache-2.0
// The verb `warm`: makes a group for every kind of a model's layers, which compiles and loads what its calls will need, and lets it
// go again. Included by serving_verbs, which wires the flags. Where code is kept is the plugins' own affair.
#pragma once

#include <string>
#include <vector>

#include "verbs.h"

namespace anyattn::tools {

struct WarmOptions {
  CommonOptions common;
  TargetOptions target;
  std::vector<std::string> models;  // ids of the model table
  std::string models_file;          // empty: the table installed with the library
  std::string architecture;         // of a device that is not here, "sm_90"; empty: target.device
};

// Returns kExitOk, or kExitFailed where a kind of layers has no backend or is not made ready; its reasons are then shown. Throws
// Failure for every mistake.
int warm(const WarmOptions& options);

}  // namespace anyattn::tools
