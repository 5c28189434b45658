// SPDX-License-Identifier: Apache-2.0
// Opens one plugin as the engine would, saying before each stage that it comes. Included by the probe program only.
#pragma once

#include <functional>
#include <string>

#include "probe/child.h"
#include "probe/verdict.h"

namespace anyattn::helper {

// Runs the plugin's code in this process, which may end here. `on_stage` hears open, negotiate, register, supports.
probe::Verdict try_plugin(const probe::Question& question, const std::function<void(const std::string&)>& on_stage);

}  // namespace anyattn::helper
