// SPDX-License-Identifier: Apache-2.0
#include "config/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/nearest.h"

namespace anyattn::config {
namespace {

struct Place {
  std::string key;
  std::string section;  // "plugins.entries[]"; empty = the top level
};

// Every fixed key of the file with the section it stands in.
void collect_places(const Schema& schema, const std::string& section, std::vector<Place>& places) {
  for (const Field& field : fields_of(schema)) {
    places.push_back({field.name, section});
    collect_places(field.schema, join_path(section, field.name), places);
  }
  for (const Schema& element : schema.element)
    collect_places(element, section + (schema.type == Schema::Type::kList ? "[]" : ".*"), places);
}

std::string without_index(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '[') {
      out += "[]";
      i = path.find(']', i);
      if (i == std::string::npos) break;
    } else {
      out += path[i];
    }
  }
  return out;
}

std::string bounds(const Schema& schema) {
  const bool low = schema.min != std::numeric_limits<int64_t>::min();
  const bool high = schema.max != std::numeric_limits<int64_t>::max();
  if (low && high) return fmt::format(" from {} to {}", schema.min, schema.max);
  if (low) return fmt::format(" of at least {}", schema.min);
  if (high) return fmt::format(" of at most {}", schema.max);
  return "";
}

std::string allowed_keys(const Schema& mapping) {
  std::vector<std::string> names;
  for (const Field& field : fields_of(mapping)) names.push_back(field.name);
  return comma_list(names);
}

}  // namespace

std::string comma_list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string describe_given(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMapping:
      return "a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  if (!node.quoted && (node.text == "true" || node.text == "false")) return "the boolean " + node.text;
  const bool number = !node.quoted && !node.text.empty() && node.text.find_first_not_of("+-.0123456789") == std::string::npos;
  if (number) return "the number " + node.text;
  return "the text " + quote(node.text);
}

std::string describe_wanted(const Schema& schema) {
  const std::string example = schema.example.empty() ? "" : ", as in " + schema.example;
  switch (schema.type) {
    case Schema::Type::kText:
      if (!schema.choices.empty()) return "one of " + comma_list(schema.choices);
      return (schema.form.allowed.empty() ? "a text" : schema.form.allowed) + example;
    case Schema::Type::kAnyText:
      return "one value (text, number, true or false)" + example;
    case Schema::Type::kInteger:
      return "an integer" + bounds(schema) + " in decimal digits";
    case Schema::Type::kNumber:
      return "a number" + bounds(schema);
    case Schema::Type::kBoolean:
      return "true or false";
    case Schema::Type::kList:
      return (schema.filled ? "a list of at least one element" : "a list") + example;
    case Schema::Type::kMapping:
      return fmt::format("a mapping with the keys {}{}", allowed_keys(schema), example);
    case Schema::Type::kMap:
      return (schema.filled ? "a mapping of at least one key" : "a mapping") + example;
  }
  return "";
}

std::string describe_unknown_key(const std::string& key, const Schema& mapping, const std::string& path, const Schema& root) {
  std::vector<std::string> own;
  for (const Field& field : fields_of(mapping)) own.push_back(field.name);
  std::vector<Place> places;
  collect_places(root, "", places);

  const std::string wanted = normalised(key);
  std::string dotted = wanted;
  std::replace(dotted.begin(), dotted.end(), '.', '_');
  std::string hint;
  const auto own_exact =
      std::find_if(own.begin(), own.end(), [&](const std::string& name) { return normalised(name) == wanted; });
  const auto elsewhere = std::find_if(places.begin(), places.end(), [&](const Place& place) {
    if (without_index(path) == place.section) return false;
    std::string whole = normalised(join_path(place.section, place.key));
    std::replace(whole.begin(), whole.end(), '.', '_');
    return normalised(place.key) == wanted || whole == dotted;
  });
  if (own_exact != own.end()) {
    hint = fmt::format("write {}", *own_exact);
  } else if (elsewhere != places.end()) {
    hint = elsewhere->section.empty() ? fmt::format("{} belongs to the top level of the file", elsewhere->key)
                                      : fmt::format("{} belongs to the section {}", elsewhere->key, elsewhere->section);
  } else if (const std::string near = nearest(key, own); !near.empty()) {
    hint = fmt::format("did you mean {}?", near);
  } else {
    std::vector<std::string> all;
    all.reserve(places.size());
    for (const Place& place : places) all.push_back(place.key);
    const std::string far = wanted.size() < 4 ? "" : nearest(key, all);
    const auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.key == far; });
    if (place != places.end() && !place->section.empty())
      hint = fmt::format("did you mean {} of the section {}?", place->key, place->section);
  }
  if (!hint.empty()) hint = fmt::format("; {}", hint);
  return fmt::format("unknown key{}{} allowed here: {}", hint, hint.ends_with('?') ? "" : ";", comma_list(own));
}

}  // namespace anyattn::config
