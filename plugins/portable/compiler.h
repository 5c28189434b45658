// SPDX-License-Identifier: Apache-2.0
// From a specialisation to machine code: the embedded source through the vendor's run-time compiler, or out of the disk cache.
// Included by kernels_gpu.cc. Cold: only warmup comes here.
#pragma once

#include <string>

#include "kernels.h"

namespace anyattn::portable {

// The whole program of one lane: constants, then the text.
std::string program_text(const Specialisation& spec, int lane);

// Machine code for the device. Throws UNSUPPORTED with the compiler's log, or where there is no compiler.
std::string machine_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec, int lane);

// 0 where there is none.
uint32_t compiler_version();

}  // namespace anyattn::portable
