// SPDX-License-Identifier: Apache-2.0
// The words for a problem: names, values, rules' comparisons, the one-line description, owning copies.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::Problem;

TEST_CASE("every_feature_bit_has_a_word_and_every_word_is_unique") {
  std::set<std::string_view> names;
  uint32_t features = 0;
  for (const Field& field : fields()) {
    CHECK(names.insert(field.name).second);
    if (field.is_feature) CHECK(field.read_with == uint64_t{1} << features++);
  }
  CHECK(features == ANYATTN_FEATURE_COUNT);
  CHECK(rule_field_names().size() == fields().size() + 1);
}

TEST_CASE("a_bit_without_a_word_is_named_by_its_number") {
  const uint64_t words[2] = {uint64_t{1} << ANYATTN_FEATURE_SINKS, 2};
  anyattn_problem problem = Problem();
  problem.features = words;
  problem.num_feature_words = 2;
  CHECK(feature_names(problem) == std::vector<std::string>{"sinks", "feature_65"});
  CHECK(describe(problem).ends_with(", sinks, feature_65"));
}

TEST_CASE("describe_says_fields_and_parameters_of_set_features_only") {
  Problem problem;
  problem.with(ANYATTN_FEATURE_WINDOW);
  problem.c.window_left = 127;
  problem.c.window_right = -1;
  problem.c.kv_cache_dtype = "float16";
  problem.c.block_size = 32;
  problem.c.logits_soft_cap = 30;
  CHECK(describe(problem) ==
        "attention_type decoder, key_source paged, phase both, num_q_heads 8, num_kv_heads 2, head_size 64, head_size_v 64, "
        "q_dtype bfloat16, out_dtype bfloat16, block_size 32, kv_cache_dtype float16, window window_left=127 window_right=-1");
}

TEST_CASE("rule_values_match_by_meaning") {
  Problem problem;
  problem.with(ANYATTN_FEATURE_SOFT_CAP);
  problem.c.logits_soft_cap = 50;
  problem.c.window_left = 5;  // its feature is off
  problem.c.phase = ANYATTN_PHASE_DECODE;
  problem.c.kv_cache_dtype = "fp8_e4m3";
  const anyattn_problem c = problem;
  struct {
    const char* field;
    const char* text;
    bool matches;
  } const cases[] = {
      {"head_size", "64", true},           {"head_size", "064", true},      {"head_size", "65", false},
      {"logits_soft_cap", "50.0", true},   {"logits_soft_cap", "50", true}, {"logits_soft_cap", "30", false},
      {"soft_cap", "true", true},          {"sinks", "false", true},        {"sinks", "true", false},
      {"window_left", "5", false},         {"phase", "decode", true},       {"phase", "prefill", false},
      {"attention_type", "decoder", true}, {"q_dtype", "bfloat16", true},   {"kv_cache_dtype", "fp8_e4m3", true},
  };
  for (const auto& one : cases) {
    CAPTURE(one.field);
    CAPTURE(one.text);
    CHECK(field_matches(*find_field(one.field), c, one.text) == one.matches);
  }
}

TEST_CASE("rule_values_that_could_never_match_are_told_what_is_allowed") {
  CHECK(field_value_problem(*find_field("head_size"), "big") == "a whole number");
  CHECK(field_value_problem(*find_field("logits_soft_cap"), "x") == "a number");
  CHECK(field_value_problem(*find_field("sinks"), "yes") == "true | false");
  CHECK(field_value_problem(*find_field("phase"), "decoding") == "both | prefill | decode");
  CHECK(field_value_problem(*find_field("q_dtype"), "bf16").starts_with("float32 | float16 | bfloat16"));
  CHECK(field_value_problem(*find_field("graph_level"), "always") == "");
}

TEST_CASE("names_of_numbers_go_both_ways") {
  for (const uint32_t dtype : {ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16,
                               ANYATTN_DTYPE_FLOAT8_E4M3FN, ANYATTN_DTYPE_FLOAT8_E5M2, ANYATTN_DTYPE_INT8, ANYATTN_DTYPE_UINT8})
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
  CHECK_FALSE(dtype_from_name("half"));
  CHECK(dtype_name(7) == "unknown");
  CHECK(graph_level_name(15) == "single_token_decode");
  CHECK(graph_level_name(99) == "always");
  CHECK(reason_name(ANYATTN_REASON_HEAD_SIZE) == "head_size");
  CHECK(reason_name(ANYATTN_REASON_VENDOR + 7) == "vendor");
  CHECK(reason_name(0) == "core");
  CHECK(lse_bases_text(3) == "natural | base2");
}

TEST_CASE("an_owned_problem_outlives_what_it_was_made_of") {
  OwnedProblem owned;
  {
    std::string dtype = "float16";
    Problem problem;
    problem.with(ANYATTN_FEATURE_SINKS).c.kv_cache_dtype = dtype.c_str();
    owned = OwnedProblem(problem);
    dtype.assign("overwritten");
    problem.features[0] = 0;
  }
  const OwnedProblem moved = std::move(owned);
  const anyattn_problem view = moved.view();
  CHECK(anyattn_problem_has(&view, ANYATTN_FEATURE_SINKS));
  CHECK(std::string(view.kv_cache_dtype) == "float16");
  CHECK(view.struct_size == ANYATTN_PROBLEM_SIZE);
}

TEST_CASE("owned_problems_are_equal_by_meaning") {
  Problem one;
  Problem other;
  other.c.window_left = 3;  // not read: WINDOW is off
  other.c.cp_world_size = 9;
  CHECK(OwnedProblem(one) == OwnedProblem(other));
  const uint64_t words[2] = {0, 0};
  anyattn_problem longer = one;
  longer.features = words;
  longer.num_feature_words = 2;
  CHECK(OwnedProblem(longer) == OwnedProblem(one));
  other.with(ANYATTN_FEATURE_WINDOW);
  CHECK_FALSE(OwnedProblem(one) == OwnedProblem(other));
  anyattn_problem null_dtype = one;
  anyattn_problem auto_dtype = one;
  auto_dtype.kv_cache_dtype = "auto";
  CHECK_FALSE(OwnedProblem(null_dtype) == OwnedProblem(auto_dtype));
}

TEST_CASE("a_longer_struct_of_a_newer_caller_is_read_as_far_as_it_is_known") {
  struct {
    anyattn_problem known;
    uint64_t later;
  } newer{Problem(), ~uint64_t{0}};
  newer.known.struct_size = sizeof newer;
  const Problem same;
  newer.known.features = same.features;
  CHECK(validate_problem(&newer.known) == "");
  CHECK(OwnedProblem(newer.known) == OwnedProblem(same));
}
