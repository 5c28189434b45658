// SPDX-License-Identifier: Apache-2.0
// Which security settings a running process may take from a changed configuration: those that tighten. Included by the reload.
#pragma once

#include <string>

#include "config/config.h"

namespace anyattn::config {

// One sentence with the first setting of `next` that is looser than what the process runs with; "" where there is none. Watched:
// trust.level, probe.enabled, and above trust.level hash the set of trust.keys. Pins of single plugins are how a roll-out is done and may change.
std::string loosened(const Config& running, const Config& next);

}  // namespace anyattn::config
