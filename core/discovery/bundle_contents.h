// SPDX-License-Identifier: Apache-2.0
// A bundle's folder as a whole: the manifest that its files give, and whether its files are what its manifest says.
// Included by the API. Reads every file; opens nothing as code.
#pragma once

#include <optional>
#include <string>

#include "discovery/bundle.h"

namespace anyattn::discovery {

// What the plugins, sidecars and libraries in the folder say together. Throws ConfigError or std::runtime_error with a sentence.
config::Manifest describe_folder(const std::string& folder, uint32_t driver);

// Missing, added, changed files; a manifest that says other than the binaries and sidecars. The first that is found.
std::optional<inspect::Finding> check_contents(const Bundle& bundle);

}  // namespace anyattn::discovery
