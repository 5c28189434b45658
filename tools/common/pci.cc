// SPDX-License-Identifier: Apache-2.0
#include "common/pci.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace anyattn::tools {
namespace {

constexpr unsigned kDisplay = 0x03, kAccelerator = 0x12;  // base classes of the PCI code and ID assignment

// The number in a file of sysfs, "0x8086"; 0 where there is none.
unsigned number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  unsigned number = 0;
  in >> std::hex >> number;
  return number;
}

}  // namespace

std::vector<std::string> cards_of(unsigned vendor, const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(folder, error)) {
    const unsigned base_class = number_in(device.path() / "class") >> 16;
    if (base_class != kDisplay && base_class != kAccelerator) continue;
    if (number_in(device.path() / "vendor") == vendor) found.push_back(device.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace anyattn::tools
