// SPDX-License-Identifier: Apache-2.0
// A YAML file as a small tree of text, lists and mappings, every node with its line and column.
// Included inside core/config only, by whoever checks or reads such a tree. Knows no key: see schema.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/place.h"

namespace anyattn::config {

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMapping };
  struct Key {
    std::string text;
    Mark mark;
  };

  Kind kind = Kind::kNull;
  bool quoted = false;  // a scalar in quotes or a block: always text
  Mark mark;
  std::string text;             // kScalar
  std::vector<Key> keys;        // kMapping: keys[i] belongs to items[i]; no key twice
  std::vector<YamlNode> items;  // kList, kMapping

  // The value of `key`, or null where this is no mapping that has it.
  const YamlNode* find(std::string_view key) const;
};

struct Document {
  std::string file;
  YamlNode root;
};

// What a file may be at most; beyond it is an error, so that a hostile file costs neither time nor memory.
struct YamlLimits {
  size_t bytes = 1u << 20;
  size_t nodes = 50000;
  size_t depth = 16;
};

// One document of plain YAML: no anchors, aliases, tags, directives, second document, duplicate keys, tabs in the indentation,
// control characters or bytes that are not UTF-8. Throws ConfigError with file, line, column and key path.
Document parse_yaml(std::string_view text, const std::string& file, const YamlLimits& limits = {});
// The same from a regular file of at most limits.bytes.
Document read_yaml(const std::string& file, const YamlLimits& limits = {});

}  // namespace anyattn::config
