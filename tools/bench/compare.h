// SPDX-License-Identifier: Apache-2.0
// Two answers of bench, row against row. Included by bench.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/terminal.h"

namespace anyattn::tools::bench {

// A file that --json wrote. Throws Failure(kExitUsage) where it cannot be read or is another.
nlohmann::ordered_json read_answer(const std::string& file);

// rows[].{name,before_us,after_us,time,before_share,after_share} of the rows in both; only_before[], only_after[] by name.
// time: after / before. Shares are of the limit measured beside each row, so a neighbour moves them less than times.
nlohmann::ordered_json compare(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after);
std::string comparison_text(const nlohmann::ordered_json& comparison, const Terminal& terminal);

}  // namespace anyattn::tools::bench
