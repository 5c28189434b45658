// SPDX-License-Identifier: Apache-2.0
// The words of the checker: what was given, what is wanted, which key was meant. Included by schema.cc only, and its test.
#pragma once

#include <string>

#include "config/schema.h"

namespace anyattn::config {

// "the boolean false", "the text \"x\"", "a list".
std::string describe_given(const YamlNode& node);
// "true or false", "an integer from 1 to 10", "a list of texts, as in [a, b]".
std::string describe_wanted(const Schema& schema);
// The sentence about `key`, which `mapping` (at `path`) does not know: nearest key, section it belongs to, allowed keys.
std::string describe_unknown_key(const std::string& key, const Schema& mapping, const std::string& path, const Schema& root);

}  // namespace anyattn::config
