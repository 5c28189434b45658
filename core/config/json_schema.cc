// SPDX-License-Identifier: Apache-2.0
#include "config/json_schema.h"

#include <fmt/format.h>

#include <utility>

#include "config/json_text.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

// Members of an object in order, each value JSON already.
using Members = std::vector<std::pair<std::string, std::string>>;

std::string indented(const std::string& json) {
  std::string out;
  for (char c : json) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out;
}

std::string object(const Members& members) {
  if (members.empty()) return "{}";
  std::string out = "{";
  for (const auto& [name, value] : members)
    out += fmt::format("{}\n  {}: {}", out.size() > 1 ? "," : "", json_quote(name), indented(value));
  return out + "\n}";
}

std::string array(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : ", ") + value;
  return fmt::format("[{}]", out);
}

// A default, written in YAML, as JSON; its numbers and booleans are those that the schema's type makes of them.
std::string value_json(const YamlNode& node, const Schema& schema) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar: {
      const bool literal = schema.type == Type::kInteger || schema.type == Type::kNumber || schema.type == Type::kBoolean;
      return literal ? node.text : json_quote(node.text);
    }
    case YamlNode::Kind::kList: {
      std::vector<std::string> values;
      values.reserve(node.items.size());
      for (const YamlNode& item : node.items) values.push_back(value_json(item, schema.element.front()));
      return array(values);
    }
    case YamlNode::Kind::kMapping:
      return "{}";  // the fields below carry their own defaults
  }
  return "null";
}

std::string type_json(const char* name, bool nullable) {
  return nullable ? array({json_quote(name), "\"null\""}) : json_quote(name);
}

Members members_of(const Schema& schema, bool nullable);

void add_fields(const Schema& schema, Members& out) {
  Members properties;
  std::vector<std::string> required;
  for (const Field& field : fields_of(schema)) {
    Members members = {{"description", json_quote(field.help)}};
    for (auto& member : members_of(field.schema, !field.required)) members.push_back(std::move(member));
    if (!field.required) members.emplace_back("default", value_json(parse_yaml(field.fallback, field.name).root, field.schema));
    if (field.required) required.push_back(json_quote(field.name));
    properties.emplace_back(field.name, object(members));
  }
  out.emplace_back("additionalProperties", "false");
  if (!required.empty()) out.emplace_back("required", array(required));
  out.emplace_back("properties", object(properties));
}

void add_text(const Schema& schema, bool nullable, Members& out) {
  if (schema.choices.empty()) {
    out.emplace_back("type", type_json("string", nullable));
    if (!schema.form.pattern.empty()) out.emplace_back("pattern", json_quote(schema.form.pattern));
    return;
  }
  std::vector<std::string> names;
  names.reserve(schema.choices.size() + 1);
  for (const std::string& name : schema.choices) names.push_back(json_quote(name));
  if (nullable) names.emplace_back("null");
  out.emplace_back("enum", array(names));
}

void add_bounds(const Schema& schema, Members& out) {
  if (schema.min != std::numeric_limits<int64_t>::min()) out.emplace_back("minimum", std::to_string(schema.min));
  if (schema.max != std::numeric_limits<int64_t>::max()) out.emplace_back("maximum", std::to_string(schema.max));
}

Members members_of(const Schema& schema, bool nullable) {
  Members out;
  switch (schema.type) {
    case Type::kText:
      add_text(schema, nullable, out);
      break;
    case Type::kAnyText:
      out.emplace_back("type", array({"\"string\"", "\"number\"", "\"boolean\""}));
      break;
    case Type::kInteger:
    case Type::kNumber:
      out.emplace_back("type", type_json(schema.type == Type::kInteger ? "integer" : "number", nullable));
      add_bounds(schema, out);
      break;
    case Type::kBoolean:
      out.emplace_back("type", type_json("boolean", nullable));
      break;
    case Type::kList:
      out.emplace_back("type", type_json("array", nullable));
      if (schema.filled) out.emplace_back("minItems", "1");
      if (schema.unique) out.emplace_back("uniqueItems", "true");
      out.emplace_back("items", object(members_of(schema.element.front(), false)));
      break;
    case Type::kMapping:
      out.emplace_back("type", type_json("object", nullable));
      add_fields(schema, out);
      break;
    case Type::kMap:
      out.emplace_back("type", type_json("object", nullable));
      if (schema.filled) out.emplace_back("minProperties", "1");
      if (!schema.form.pattern.empty())
        out.emplace_back("propertyNames", object({{"pattern", json_quote(schema.form.pattern)}}));
      out.emplace_back("additionalProperties", object(members_of(schema.element.front(), false)));
      break;
  }
  return out;
}

}  // namespace

std::string json_schema(const FileSchema& schema, const std::string& title) {
  Members members = {{"$schema", "\"https://json-schema.org/draft/2020-12/schema\""}, {"title", json_quote(title)}};
  for (auto& member : members_of(schema.root, false)) members.push_back(std::move(member));
  return object(members) + "\n";
}

}  // namespace anyattn::config
