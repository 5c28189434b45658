// SPDX-License-Identifier: Apache-2.0
// What a shared object must be to be opened as a plugin: this machine, one exported symbol, no host library, no executable stack.
// Included by discovery. Judges the file alone; where it lies is core/trust's affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "anyattn/types.h"
#include "inspect/elf.h"

namespace anyattn::inspect {

std::optional<Finding> check_plugin(const ElfFile& file, uint32_t abi_major = ANYATTN_ABI_MAJOR);

// Reads and checks.
std::optional<Finding> inspect_plugin(std::span<const std::byte> bytes, uint32_t abi_major = ANYATTN_ABI_MAJOR);

}  // namespace anyattn::inspect
