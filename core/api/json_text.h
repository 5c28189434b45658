// SPDX-License-Identifier: Apache-2.0
// The JSON texts of the API: their keys are what scripts rely on. Included by describe.cc. Decides nothing.
#pragma once

#include <string>
#include <vector>

#include "anyattn/device.h"
#include "anyattn/host.h"
#include "config/config.h"
#include "config/profile.h"
#include "device/devices.h"
#include "registry/registry.h"
#include "selector/selector.h"

namespace anyattn::api {

struct Draining;
std::string list_json(const registry::Snapshot& snapshot, const std::vector<Draining>& draining,
                      const selector::Quarantine& quarantine);
std::string config_json(const config::Config& config);
std::string devices_json(const std::vector<anyattn_device_facts>& devices, const std::vector<device::MissingKind>& missing,
                         const anyattn_cpu_facts& cpu, const registry::Registry& registry, const config::Profile* profile);
// The decision was made with ask_all; it may have chosen nothing.
std::string explain_json(const selector::Decision& decision);

}  // namespace anyattn::api
