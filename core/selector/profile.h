// SPDX-License-Identifier: Apache-2.0
// What a profile means for a selection: whether it is of this device and these plugins, and the order its measurements give.
// Included by the selector and the API. Reads no file and measures nothing.
#pragma once

#include <string>
#include <vector>

#include "config/profile.h"
#include "selector/policy.h"
#include "selector/selector.h"

namespace anyattn::selector {

// Key of a profile's entry: 64 hex digits over the kind of device and every field that counts of the problem as it was asked, its
// kv_cache_dtype resolved.
std::string profile_key(const OwnedProblem& problem, uint32_t device_kind);

// Empty where device, driver and the plugins that were measured are what the profile says; else one sentence with both. Of
// a device of another kind the profile says nothing: is_about first.
bool is_about(const config::Profile& profile, const anyattn_device_facts& device);
std::string why_stale(const config::Profile& profile, const anyattn_device_facts& device, const registry::View& view);

// The entry that counts for this problem on this device; null: none, or the profile is stale.
const config::Profile::Entry* find_entry(const config::Profile& profile, const OwnedProblem& problem,
                                         const anyattn_device_facts& device, const registry::View& view);

// Sorts the names that the entry has times of, among the places they have: a name passes the one before it only where its
// slowest round beats the other's fastest in every shape. So whoever stands before another against the order given was faster
// than it in every round. Sets `profiled` on names that passed another.
void apply_profile(const config::Profile::Entry& entry, std::vector<Ordered>& names);

// The backend's times in the entry, one a shape; empty where a shape lacks it.
std::vector<Measured> measured(const config::Profile::Entry& entry, const std::string& backend);

}  // namespace anyattn::selector
