// SPDX-License-Identifier: Apache-2.0
// A profile's file: its head out of what the runtime says, and the writing. Included by tune. Measures nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "anyattn/runtime.hpp"
#include "tune/tune.h"

namespace anyattn::tools {

// profile, anyattn, date, threads, rounds, device{} of "cpu:0", plugins[] of these ids, and entries[], empty. Throws Failure where
// the device is none of those that the runtime lists.
nlohmann::ordered_json profile_head(const Runtime& runtime, const TuneOptions& options, const std::string& device,
                                    const std::set<std::string>& plugins);

// Whole or not at all: written beside it, then renamed. Throws Failure with the system's reason.
void write_profile(const std::string& file, const nlohmann::ordered_json& profile);

}  // namespace anyattn::tools
