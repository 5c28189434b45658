// SPDX-License-Identifier: Apache-2.0
// Whether AMD's runtime could be opened. Included by vendor.h; the runtime's functions are those of hip_runtime_api.h.
#pragma once

#include <string>

namespace anyattn::device {

// The loader's words where no libamdhip64 opens; else empty.
std::string why_no_runtime();

}  // namespace anyattn::device
