// SPDX-License-Identifier: Apache-2.0
// A schema of ours as a JSON schema, for editors. Included by the program that writes config/schema.json and the test that it is true.
#pragma once

#include <string>

#include "config/schema.h"

namespace anyattn::config {

// Draft 2020-12, indented, with a final newline; the same text for the same schema.
std::string json_schema(const FileSchema& schema, const std::string& title);

}  // namespace anyattn::config
