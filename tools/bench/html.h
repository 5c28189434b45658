// SPDX-License-Identifier: Apache-2.0
// What bench found as one HTML file that needs no other: plots as inline SVG, then the tables. Included by bench.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace anyattn::tools::bench {

std::string html_of(const nlohmann::ordered_json& answer);

// Throws Failure: kExitUsage for a file that holds something other than such a page, kExitFailed where it cannot be written.
void check_html_file(const std::string& file);
void write_html(const std::string& file, const std::string& html);

}  // namespace anyattn::tools::bench
