// SPDX-License-Identifier: Apache-2.0
// A value of the library's JSON as one line of text. Included by verbs that print tables of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace anyattn::tools {

// Texts without quotes, numbers and booleans as written, lists with commas, null and nothing as "".
std::string text_of(const nlohmann::ordered_json& value);
// The same of a member; "" where it is absent.
std::string text_of(const nlohmann::ordered_json& object, const char* key);

}  // namespace anyattn::tools
