// SPDX-License-Identifier: Apache-2.0
#include "common/json_text.h"

#include <nlohmann/json.hpp>

namespace anyattn::tools {

std::string text_of(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& element : value) text += (text.empty() ? "" : ", ") + text_of(element);
  return text;
}

std::string text_of(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? "" : text_of(*found);
}

}  // namespace anyattn::tools
