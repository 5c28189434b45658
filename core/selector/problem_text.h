// SPDX-License-Identifier: Apache-2.0
// The words for a problem: one table of fields and features <-> anyattn_problem, read by rules, errors, explain and JSON.
// Included by the selector and the API. Knows no backend and no registry.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyattn/problem.h"

namespace anyattn::selector {

enum class FieldType { kInteger, kNumber, kBool, kWord, kDtype, kText };

struct Word {
  std::string_view name;
  uint32_t value;
};

// One field or feature of the problem.
struct Field {
  std::string_view name;  // as in the struct; a feature's is its bit's: sinks, soft_cap, ...
  FieldType type;
  bool is_feature;
  uint64_t read_with;           // features (as a mask) of which one must be set for a parameter to be read; 0: always read
  std::span<const Word> words;  // values of a kWord or kDtype, else empty
  std::string (*text)(const anyattn_problem&);
};

// Every field in the struct's order (features first, one row a bit), without the words at `features`.
std::span<const Field> fields();
const Field* find_field(std::string_view name);
// Names a rule's `when` may hold: fields() and "device".
std::vector<std::string> rule_field_names();

// True if the field counts for this problem: its feature is set, or it has none. A parameter whose feature is off never
// matches a rule; CP_DECODE or CP_PREFILL makes cp_* read.
bool field_is_read(const Field& field, const anyattn_problem& problem);
// Does the field's value equal `text` as a rule writes it? 50 equals 50.0; true and false for features.
bool field_matches(const Field& field, const anyattn_problem& problem, std::string_view text);
// Empty if a rule may write `text` for this field, else what is allowed: "a whole number", "prefill | decode | both".
std::string field_value_problem(const Field& field, std::string_view text);

// Set features by name in bit order; bits past the known ones as feature_37.
std::vector<std::string> feature_names(const anyattn_problem& problem);

std::string_view dtype_name(uint32_t dtype);  // "bfloat16"; "unknown"
std::optional<uint32_t> dtype_from_name(std::string_view name);
std::string_view phase_name(uint32_t phase);            // "both", "prefill", "decode"
std::string_view graph_level_name(uint32_t level);      // an unknown level reads as the next lower known one
std::string_view query_lengths_name(uint32_t lengths);  // "single", "uniform", "any"
std::string_view plane_role_name(uint32_t role);        // "k", "v", "latent", ...
std::string_view reason_name(uint32_t id);              // "head_size", "feature", ...; "vendor"; "core" for 0
std::string lse_bases_text(uint32_t bases);             // "natural | base2"

// One line: "decoder paged both, 32 q heads / 8 kv heads x 128, q bfloat16, kv_cache_dtype bfloat16, block_size 16, window_left
// 4095".
std::string describe(const anyattn_problem& problem);

// "\nNAME=VALUE" for every feature and every field that counts: equal where two problems mean the same.
std::string all_fields(const anyattn_problem& problem);

// Empty where the problem is one that can be asked, else one sentence: field, value, what is allowed. Bits that are not known
// here are left to the backends to refuse.
std::string validate_problem(const anyattn_problem* problem);

}  // namespace anyattn::selector
