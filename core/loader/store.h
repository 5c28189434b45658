// SPDX-License-Identifier: Apache-2.0
// Private copies that are opened instead of the files they were made of, so that nothing changes between check and open.
// Included inside core/loader only. A folder is named by the hashes of all it holds.
#pragma once

#include <string>

#include "discovery/discovery.h"
#include "loader/failure.h"

namespace anyattn::loader {

// Copies the candidate and its companions into `store` (absolute; made for this user alone), each read once and compared with
// its hash, and returns the copy's path. Where trust asks for no copy, links stand for whatever else lies beside the file, so that
// the plugin finds its data there. What is there already is compared again. This
// process holds the folder from then on; others that nobody holds may be pruned (store_limits.h). Throws Refusal.
std::string put_copy(const std::string& store, const discovery::Candidate& candidate);

}  // namespace anyattn::loader
