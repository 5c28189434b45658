// SPDX-License-Identifier: Apache-2.0
// Which devices a file holds code for, from the fat binaries of CUDA and HIP inside it. Included by discovery and tests.
// Finds them by their marks, so that stripped section headers do not hide them; decodes no code.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>

namespace anyattn::inspect {

// "sm_90a" (machine code), "compute_90" (PTX, which newer devices compile), "gfx942". Empty: no device code.
std::set<std::string> device_code(std::span<const std::byte> bytes);

// Does a device of this architecture ("sm_90", "gfx942") find code in the set? Machine code runs on its own major, on this
// minor or a later one; sm_90a on 9.0 alone; PTX on every device from its version on; gfx code on the very same.
bool has_code_for(const std::set<std::string>& code, const std::string& architecture);

}  // namespace anyattn::inspect
