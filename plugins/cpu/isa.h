// SPDX-License-Identifier: Apache-2.0
// Which instruction set runs: the best the host's facts allow, or the one the option `isa` names.
// Included by the support decision. Asks no processor itself.
#pragma once

#include <string>
#include <string_view>

#include "anyattn/host.hpp"
#include "kernel.h"

namespace anyattn::cpu {

inline constexpr const char* kIsaChoices = "auto | amx_bf16 | avx512_bf16 | avx512 | avx2 | x86_64_v2 | portable";

// The kernels to use, or null where `option` names none that this processor can run.
const Kernels* choose_kernels(const Host& host, std::string_view option);

// "avx2 | x86_64_v2 | portable": what this processor can run, best first.
std::string runnable_isas(const Host& host);

}  // namespace anyattn::cpu
