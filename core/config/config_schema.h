// SPDX-License-Identifier: Apache-2.0
// The schema of the configuration file: the one list of its keys, types, defaults and meanings.
// Included by the reader and by what proves default.yaml, README.md and schema.json true.
#pragma once

#include "config/schema.h"

namespace anyattn::config {

// rule_fields: names allowed in selection.rules[].when; empty = any.
FileSchema config_schema(const std::vector<std::string>& rule_fields = {});

std::vector<std::string> log_levels();

}  // namespace anyattn::config
