// SPDX-License-Identifier: Apache-2.0
// Does the plugin say of itself what its sidecar and the configuration say of it? Included inside core/loader only.
#pragma once

#include "config/sidecar.h"
#include "loader/tables.h"

namespace anyattn::loader {

// id, version range, backends and providers; a difference is an error, whichever is right. Throws Refusal (stage register).
void check_sidecar(const Tables& tables, const config::Sidecar& sidecar);

// The entry's id, and that the plugin reads every option the entry sets. Throws Refusal (stage register).
void check_entry(const Tables& tables, const config::PluginEntry& entry);

}  // namespace anyattn::loader
