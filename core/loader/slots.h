// SPDX-License-Identifier: Apache-2.0
// Copies backend and provider tables and checks that every slot their kind requires is there. Included inside core/loader only.
#pragma once

#include <string>

#include "loader/failure.h"
#include "loader/plugin.h"

namespace anyattn::loader {

// Throws Refusal (stage negotiate) where `given` is null, too short, misnamed or lacks a required slot.
Backend read_backend(const anyattn_backend* given, uint32_t index);
Provider read_provider(const anyattn_device_provider* given, uint32_t index);

// A text of the plugin; `what` names the field. Throws Refusal where it is null and may not be, or endless.
std::string read_text(const char* text, const std::string& what, bool may_be_null = false);
// Checks struct_size against the end of the last field that ABI 0.1 requires.
void require_size(const void* given, const std::string& what, uint32_t need);
[[noreturn]] void refuse(int32_t status, std::string reason, std::string remedy);

}  // namespace anyattn::loader
