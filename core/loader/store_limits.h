// SPDX-License-Identifier: Apache-2.0
// Which private copies stay: those that a process holds, and the latest used of the rest. Included by the store and its test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace anyattn::loader {

// How much a store holds, copies in use counted; those stay even beyond it.
struct StoreLimits {
  size_t contents = 32;
  uint64_t bytes = uint64_t{4} << 30;
};

// Makes `folder` of the store where it is missing and holds it until this process ends, so that nobody prunes it; marks it as
// used now. Answers what is in the way, empty where it is held.
std::string hold_copy(const std::string& folder);

// Removes the folders used longest ago until the rest is within the limits; never one that a process holds. What cannot be
// removed stays.
void prune_store(const std::string& store, const StoreLimits& limits);

}  // namespace anyattn::loader
