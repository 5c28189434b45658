// SPDX-License-Identifier: Apache-2.0
// Which graphics and accelerator cards the PCI bus shows, driver or not. Included by doctor and its test.
#pragma once

#include <string>
#include <vector>

namespace anyattn::tools {

constexpr unsigned kPciIntel = 0x8086;

// Addresses (0000:03:00.0) of a vendor's display controllers and processing accelerators, sorted; empty where the folder cannot be
// read.
std::vector<std::string> cards_of(unsigned vendor, const std::string& folder = "/sys/bus/pci/devices");

}  // namespace anyattn::tools
