// SPDX-License-Identifier: Apache-2.0
// What bench found, as tables and as JSON. Included by bench. Measures nothing.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/own_cost.h"
#include "bench/timing.h"
#include "common/terminal.h"

namespace anyattn::tools::bench {

struct Skipped {
  std::string what;
  std::string reason;
};

nlohmann::ordered_json json_of(const OwnCost& cost);
nlohmann::ordered_json json_of(const Limit& limit);
nlohmann::ordered_json json_of(const Row& row);
nlohmann::ordered_json json_of(const Skipped& skipped);

// Fills each row's `against`: {kv_cache_dtype, speed} of the first row that differs in the cache's format or in batch invariance
// only, speed = its time / this one's. Null for a row that has none before it.
void set_against(nlohmann::ordered_json& rows);

// The answer's parts: own_cost[], limits[], rows[], skipped[]. A part that is empty gives nothing. `wide`: rows with all columns;
// else without shares of compute and ns a key, and what all rows have in common stands above them.
std::string text_of(const nlohmann::ordered_json& answer, const Terminal& terminal, bool wide);

// "32/8/128 bfloat16 decode 1 x 8192 cold, 2 threads": one row apart from all others of an answer.
std::string name_of(const nlohmann::ordered_json& row);

}  // namespace anyattn::tools::bench
