// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>

#include "config/describe.h"
#include "config/nearest.h"

namespace anyattn::config {
namespace {

// Decimal digits with a sign; never octal, hexadecimal or with an exponent.
std::optional<int64_t> to_integer(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return std::nullopt;
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, 10);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> to_number(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return std::nullopt;
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool plain_boolean(const YamlNode& node) { return !node.quoted && (node.text == "true" || node.text == "false"); }

class Checker {
 public:
  Checker(const std::string& file, const FileSchema& schema) : file_(file), schema_(schema) {}

  void check_root(YamlNode& root) {
    const std::string wanted = describe_wanted(schema_.root);
    if (root.kind == YamlNode::Kind::kNull && schema_.version.key.empty())
      fail(file_, {}, "", fmt::format("the file is empty; {} is {}", schema_.what, wanted));
    if (root.kind == YamlNode::Kind::kNull)
      fail(file_, {}, "",
           fmt::format("the file is empty; {} begins with {}: {}", schema_.what, schema_.version.key, schema_.version.known));
    if (root.kind != YamlNode::Kind::kMapping)
      fail(file_, root.mark, "", fmt::format("the file holds {}; {} is {}", describe_given(root), schema_.what, wanted));
    check_version(root);
    check_node(root, schema_.root, "");
  }

 private:
  void check_version(const YamlNode& root) {
    if (schema_.version.key.empty()) return;
    const YamlNode* node = root.find(schema_.version.key);
    if (!node || node->kind != YamlNode::Kind::kScalar || node->quoted) return;  // the field's own check speaks
    const std::optional<int64_t> given = to_integer(node->text);
    if (given && *given > schema_.version.known)
      fail(file_, node->mark, schema_.version.key,
           fmt::format("the file is written for version {} of {}; this library knows versions up to {}: use a newer library, "
                       "or write the "
                       "file for version {}",
                       *given, schema_.what, schema_.version.known, schema_.version.known));
  }

  void check_node(YamlNode& node, const Schema& schema, const std::string& path) {
    switch (schema.type) {
      case Schema::Type::kText:
      case Schema::Type::kAnyText:
        return check_text(node, schema, path);
      case Schema::Type::kInteger:
        return check_integer(node, schema, path);
      case Schema::Type::kNumber:
        return check_number(node, schema, path);
      case Schema::Type::kBoolean:
        if (node.kind != YamlNode::Kind::kScalar || !plain_boolean(node)) refuse(node, schema, path);
        return;
      case Schema::Type::kList:
        return check_list(node, schema, path);
      case Schema::Type::kMapping:
        return check_mapping(node, schema, path);
      case Schema::Type::kMap:
        return check_map(node, schema, path);
    }
  }

  void check_text(const YamlNode& node, const Schema& schema, const std::string& path) {
    if (node.kind != YamlNode::Kind::kScalar) refuse(node, schema, path);
    if (schema.type == Schema::Type::kAnyText) return;
    if (plain_boolean(node)) refuse(node, schema, path);
    check_name(node.text, node.mark, schema, path, describe_given(node));
  }

  // A text value, or a key of a map of free keys.
  void check_name(const std::string& name, Mark mark, const Schema& schema, const std::string& path, const std::string& given) {
    if (!schema.choices.empty() && std::find(schema.choices.begin(), schema.choices.end(), name) == schema.choices.end()) {
      const std::string near = nearest(name, schema.choices);
      fail(file_, mark, path,
           fmt::format("got {}; allowed: {}{}", given, comma_list(schema.choices),
                       near.empty() ? "" : "; did you mean " + near + "?"));
    }
    if (schema.form.matches && !schema.form.matches(name))
      fail(file_, mark, path, fmt::format("got {}; allowed: {}", given, schema.form.allowed));
  }

  void check_integer(const YamlNode& node, const Schema& schema, const std::string& path) {
    const std::optional<int64_t> value =
        node.kind == YamlNode::Kind::kScalar && !node.quoted ? to_integer(node.text) : std::nullopt;
    if (!value || *value < schema.min || *value > schema.max) refuse(node, schema, path);
  }

  void check_number(const YamlNode& node, const Schema& schema, const std::string& path) {
    const std::optional<double> value =
        node.kind == YamlNode::Kind::kScalar && !node.quoted ? to_number(node.text) : std::nullopt;
    if (!value || *value < static_cast<double>(schema.min) || *value > static_cast<double>(schema.max))
      refuse(node, schema, path);
  }

  void check_list(YamlNode& node, const Schema& schema, const std::string& path) {
    if (node.kind != YamlNode::Kind::kList || (schema.filled && node.items.empty())) refuse(node, schema, path);
    std::set<std::string_view> seen;
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string element_path = join_path(path, i);
      if (is_null(node.items[i]))
        fail(file_, node.items[i].mark, element_path, "got null; an element of a list has a value or is left out");
      check_node(node.items[i], schema.element.front(), element_path);
      if (schema.unique && !seen.insert(node.items[i].text).second)
        fail(file_, node.items[i].mark, element_path, fmt::format("{} is listed twice; keep one", quote(node.items[i].text)));
    }
  }

  void check_map(YamlNode& node, const Schema& schema, const std::string& path) {
    if (node.kind != YamlNode::Kind::kMapping || (schema.filled && node.items.empty())) refuse(node, schema, path);
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string value_path = join_path(path, node.keys[i].text);
      check_name(node.keys[i].text, node.keys[i].mark, schema, value_path, "the key " + quote(node.keys[i].text));
      if (is_null(node.items[i])) fail(file_, node.items[i].mark, value_path, "got null; give a value or leave the key out");
      check_node(node.items[i], schema.element.front(), value_path);
    }
  }

  void check_mapping(YamlNode& node, const Schema& schema, const std::string& path) {
    if (node.kind != YamlNode::Kind::kMapping) refuse(node, schema, path);
    check_keys(node, schema, path);
    YamlNode complete;
    complete.kind = YamlNode::Kind::kMapping;
    complete.mark = node.mark;
    for (const Field& field : fields_of(schema)) {
      const auto key =
          std::find_if(node.keys.begin(), node.keys.end(), [&](const YamlNode::Key& k) { return k.text == field.name; });
      const std::string field_path = join_path(path, field.name);
      YamlNode* given = key == node.keys.end() ? nullptr : &node.items[static_cast<size_t>(key - node.keys.begin())];
      complete.keys.push_back({field.name, given ? key->mark : Mark{}});
      complete.items.push_back(complete_field(given, field, field_path, node.mark));
    }
    node = std::move(complete);
  }

  YamlNode complete_field(YamlNode* given, const Field& field, const std::string& path, Mark parent) {
    if (field.required && !given)
      fail(file_, parent, path, fmt::format("is missing; wanted: {}", describe_wanted(field.schema)));
    if (field.required && is_null(*given))
      fail(file_, given->mark, path, fmt::format("got null; wanted: {}", describe_wanted(field.schema)));
    if (given && !is_null(*given)) {
      check_node(*given, field.schema, path);
      return std::move(*given);
    }
    YamlNode fallback = parse_yaml(field.fallback, "default of " + path).root;
    forget_marks(fallback);
    if (!is_null(fallback)) check_node(fallback, field.schema, path);
    if (given) fallback.mark = given->mark;
    return fallback;
  }

  void check_keys(const YamlNode& node, const Schema& schema, const std::string& path) {
    for (const YamlNode::Key& key : node.keys) {
      const auto known = [&](const auto& entry) { return entry.name == key.text; };
      if (std::any_of(schema.fields->begin(), schema.fields->end(), known)) continue;
      const auto moved = std::find_if(schema.moved.begin(), schema.moved.end(), known);
      const std::string key_path = join_path(path, key.text);
      if (moved == schema.moved.end())
        fail(file_, key.mark, key_path, describe_unknown_key(key.text, schema, path, schema_.root));
      if (moved->now.empty()) fail(file_, key.mark, key_path, fmt::format("the key was removed: {}; delete it", moved->reason));
      const std::string now = join_path(path, moved->now);
      if (node.find(moved->now))
        fail(file_, key.mark, key_path,
             fmt::format("the key is the old name of {}, which is given too; keep {} only", now, now));
      fail(file_, key.mark, key_path,
           fmt::format("the key was renamed: write {}{}", now, moved->reason.empty() ? "" : " (" + moved->reason + ")"));
    }
  }

  static void forget_marks(YamlNode& node) {
    node.mark = {};
    for (YamlNode::Key& key : node.keys) key.mark = {};
    for (YamlNode& item : node.items) forget_marks(item);
  }

  [[noreturn]] void refuse(const YamlNode& node, const Schema& schema, const std::string& path) const {
    fail(file_, node.mark, path, fmt::format("got {}; wanted: {}", describe_given(node), describe_wanted(schema)));
  }

  const std::string& file_;
  const FileSchema& schema_;
};

}  // namespace

Fields fields(std::vector<Field> list) { return std::make_shared<const std::vector<Field>>(std::move(list)); }

std::span<const Field> fields_of(const Schema& schema) {
  if (!schema.fields) return {};
  return *schema.fields;
}

void check(Document& document, const FileSchema& schema) { Checker(document.file, schema).check_root(document.root); }

const YamlNode& at(const YamlNode& mapping, std::string_view key) {
  const YamlNode* node = mapping.find(key);
  if (!node) throw std::logic_error(fmt::format("the schema has no key {}", key));
  return *node;
}

bool is_null(const YamlNode& node) { return node.kind == YamlNode::Kind::kNull; }
const std::string& text_of(const YamlNode& node) { return node.text; }
int64_t integer_of(const YamlNode& node) { return to_integer(node.text).value(); }
double number_of(const YamlNode& node) { return to_number(node.text).value(); }
bool boolean_of(const YamlNode& node) { return node.text == "true"; }

std::vector<std::string> texts_of(const YamlNode& list) {
  std::vector<std::string> out;
  out.reserve(list.items.size());
  for (const YamlNode& item : list.items) out.push_back(item.text);
  return out;
}

std::string to_line(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return node.quoted || node.text.empty() ? quote(node.text, node.text.size()) : node.text;
    case YamlNode::Kind::kList:
    case YamlNode::Kind::kMapping:
      break;
  }
  std::string out;
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (i) out += ", ";
    if (node.kind == YamlNode::Kind::kMapping) out += node.keys[i].text + ": ";
    out += to_line(node.items[i]);
  }
  return node.kind == YamlNode::Kind::kList ? fmt::format("[{}]", out) : fmt::format("{{{}}}", out);
}

}  // namespace anyattn::config
