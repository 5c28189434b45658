// SPDX-License-Identifier: Apache-2.0
#include "config/forms.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "config/names.h"

namespace anyattn::config {
namespace {

bool upper(char c) { return c >= 'A' && c <= 'Z'; }
bool lower(char c) { return c >= 'a' && c <= 'z'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

bool is_backend_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && upper(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return upper(c) || digit(c) || c == '_'; });
}

bool is_plugin_id(std::string_view text) {
  const auto word = [](char c) { return lower(c) || upper(c) || digit(c) || c == '_' || c == '-'; };
  bool after_word = false;
  for (char c : text) {
    if (!word(c) && (c != '.' || !after_word)) return false;
    after_word = c != '.';
  }
  return after_word && text.size() <= 128;
}

bool is_abi_version(std::string_view text) {
  const auto number = [](std::string_view part) {
    uint16_t value = 0;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    return status == std::errc() && end == part.data() + part.size() && (part.size() == 1 || part[0] != '0');
  };
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && number(text.substr(0, dot)) && number(text.substr(dot + 1));
}

bool is_hash(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) { return digit(c) || (c >= 'a' && c <= 'f'); });
}

bool is_filled(std::string_view text) { return !text.empty(); }

}  // namespace

TextForm backend_name_form() {
  return {"a backend's name of capital letters, digits and underscores, as in CPU_ATTN", "^[A-Z][A-Z0-9_]{0,63}$",
          is_backend_name};
}
TextForm plugin_id_form() {
  return {"a plugin id of words joined by dots, as in org.anyattn.cpu", "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$", is_plugin_id};
}
TextForm abi_version_form() {
  return {"an ABI version MAJOR.MINOR, as in 0.1", "^(0|[1-9][0-9]{0,4})\\.(0|[1-9][0-9]{0,4})$", is_abi_version};
}
TextForm hash_form() { return {"64 hexadecimal digits in lower case (b2sum -l 256)", "^[0-9a-f]{64}$", is_hash}; }
TextForm filled_form() { return {"a text that is not empty", "^[\\s\\S]+$", is_filled}; }

std::vector<std::string> device_kind_names() {
  std::vector<std::string> names;
  names.reserve(kDeviceKinds.size());
  for (const DeviceKindName& entry : kDeviceKinds) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> cpu_isa_names() {
  std::vector<std::string> names;
  names.reserve(kCpuIsas.size());
  for (const CpuIsaName& entry : kCpuIsas) names.emplace_back(entry.name);
  return names;
}

Schema text(TextForm form) { return {.type = Schema::Type::kText, .form = std::move(form)}; }
Schema choice(std::vector<std::string> names) { return {.type = Schema::Type::kText, .choices = std::move(names)}; }
Schema integer(int64_t min, int64_t max) { return {.type = Schema::Type::kInteger, .min = min, .max = max}; }
Schema list_of(Schema element, bool unique, std::string example) {
  return {.type = Schema::Type::kList, .element = {std::move(element)}, .unique = unique, .example = std::move(example)};
}

}  // namespace anyattn::config
