// SPDX-License-Identifier: Apache-2.0
// A text as a JSON string, for the few places that write JSON by hand. Included inside core.
#pragma once

#include <string>
#include <string_view>

namespace anyattn::config {

// Quotes included; control characters escaped; bytes above 0x7f as they are (UTF-8).
std::string json_quote(std::string_view text);

}  // namespace anyattn::config
