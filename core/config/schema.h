// SPDX-License-Identifier: Apache-2.0
// What a YAML file may say, as data: types, allowed values, defaults, help. One checker for every file we read.
// Included inside core/config by the schema of each file, the checker, and what prints a schema. Knows no file's keys.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml_tree.h"

namespace anyattn::config {

struct Field;
using Fields = std::shared_ptr<const std::vector<Field>>;

// A key of older files. Renamed: `now` is the new key of the same mapping; removed: `now` is empty and `reason` says why.
struct Moved {
  std::string name;
  std::string now;
  std::string reason;
};

// A form that a text must have.
struct TextForm {
  std::string allowed;  // completes "allowed: ..."
  std::string pattern;  // ECMAScript regular expression of the whole text, for the JSON schema
  bool (*matches)(std::string_view) = nullptr;
};

struct Schema {
  enum class Type {
    kText,     // one of `choices` where there are any, of `form` where there is one; a bare true or false is none
    kAnyText,  // any scalar, kept as written: 010, 1.10 and false stay text
    kInteger,  // decimal, min..max; 010 is 10
    kNumber,   // decimal fraction, min..max
    kBoolean,  // true or false and no other word
    kList,     // of `element`
    kMapping,  // of `fields`
    kMap,      // free keys of `key_form` (and of `choices` where there are any), values of `element`
  };

  Type type = Type::kAnyText;
  std::vector<std::string> choices = {};
  TextForm form = {};  // kMap: of the keys
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  std::vector<Schema> element = {};  // exactly one with kList and kMap
  bool unique = false;               // kList: no text twice
  bool filled = false;               // kList, kMap: at least one
  Fields fields = nullptr;           // kMapping only
  std::vector<Moved> moved = {};
  std::string example = {};  // shown where a mapping or list is wanted and something else is given
};

struct Field {
  std::string name;
  Schema schema;
  std::string help;           // one sentence
  std::string fallback = {};  // the default as YAML; "null" = no value
  bool required = false;      // must be given, and not as null; has no default
};

Fields fields(std::vector<Field> list);
std::span<const Field> fields_of(const Schema& schema);  // empty where it is no kMapping

// The file's version key: an integer, checked before anything else so that a newer file is not called full of unknown keys.
struct SchemaVersion {
  std::string key;
  int64_t known = 1;
  bool required = false;
};

struct FileSchema {
  std::string what;  // "a configuration": for texts about the whole file
  SchemaVersion version;
  Schema root;  // kMapping
};

// Checks the document and completes it: afterwards every mapping of fields holds all of them in the schema's order, those left out
// or null with their default (null: the place of the null; left out: line 0). Throws ConfigError at the first mistake.
void check(Document& document, const FileSchema& schema);

// Values of a checked tree.
const YamlNode& at(const YamlNode& mapping, std::string_view key);  // the key is one of the schema's
bool is_null(const YamlNode& node);
const std::string& text_of(const YamlNode& node);
int64_t integer_of(const YamlNode& node);
double number_of(const YamlNode& node);
bool boolean_of(const YamlNode& node);
std::vector<std::string> texts_of(const YamlNode& list);

// A value as one line of YAML: 5, [a, b], {x: 1}, null.
std::string to_line(const YamlNode& node);

// Names as a sentence lists them: "a, b, c".
std::string comma_list(const std::vector<std::string>& names);

}  // namespace anyattn::config
