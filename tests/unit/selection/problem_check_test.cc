// SPDX-License-Identifier: Apache-2.0
// Problems that cannot be asked: each is one sentence with the field, its value and what is allowed.
#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::Problem;

namespace {

struct Case {
  const char* expect;  // part of the sentence
  std::function<void(Problem&)> spoil;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("plain_mla_and_ragged_problems_pass") {
  for (const Problem& problem : {Problem(), Problem().mla(), Problem().ragged()}) {
    const anyattn_problem c = problem;
    CHECK(validate_problem(&c) == "");
  }
}

TEST_CASE("every_inconsistent_problem_is_refused_with_its_field") {
  const Case cases[] = {
      {"struct_size 16 of anyattn_problem: at least", [](Problem& p) { p.c.struct_size = 16; }},
      {"num_feature_words 4000000: allowed: 0 to 16", [](Problem& p) { p.c.num_feature_words = 4000000; }},
      {"attention_type 9", [](Problem& p) { p.c.attention_type = 9; }},
      {"key_source 2", [](Problem& p) { p.c.key_source = 2; }},
      {"phase 3", [](Problem& p) { p.c.phase = 3; }},
      {"num_q_heads 0", [](Problem& p) { p.c.num_q_heads = 0; }},
      {"num_kv_heads 3: must divide num_q_heads 8", [](Problem& p) { p.c.num_kv_heads = 3; }},
      {"num_kv_heads 0: must divide num_q_heads 8", [](Problem& p) { p.c.num_kv_heads = 0; }},
      {"head_size 0", [](Problem& p) { p.c.head_size = 0; }},
      {"head_size_v 4294967295", [](Problem& p) { p.c.head_size_v = 0xffffffffu; }},
      {"q_dtype int32", [](Problem& p) { p.c.q_dtype = ANYATTN_DTYPE_INT32; }},
      {"q_dtype float8_e4m3fn", [](Problem& p) { p.c.q_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN; }},
      {"with quantised_query: allowed: a type 8 bits wide", [](Problem& p) { p.with(ANYATTN_FEATURE_QUANTISED_QUERY); }},
      {"out_dtype unknown (0x7)", [](Problem& p) { p.c.out_dtype = 7; }},
      {"out_dtype bfloat16", [](Problem& p) { p.with(ANYATTN_FEATURE_OUT_SCALE); }},
      {"block_size 16: allowed: 0 where keys are ragged", [](Problem& p) { p.ragged().c.block_size = 16; }},
      {"kv_cache_dtype float16: must be null", [](Problem& p) { p.ragged().c.kv_cache_dtype = "float16"; }},
      {"kv_transfer needs key_source paged", [](Problem& p) { p.ragged().with(ANYATTN_FEATURE_KV_TRANSFER); }},
      {"mla needs key_source paged", [](Problem& p) { p.mla().ragged(); }},
      {"kv_cache_dtype is empty", [](Problem& p) { p.c.kv_cache_dtype = ""; }},
      {"block_size 4294967295", [](Problem& p) { p.c.block_size = 0xffffffffu; }},
      {"kv_lora_rank 0: must be > 0 with mla", [](Problem& p) { p.mla().c.kv_lora_rank = 0; }},
      {"v_head_dim 0: must be > 0 with mla", [](Problem& p) { p.mla().c.v_head_dim = 0; }},
      {"num_kv_heads 8: allowed: 1 with mla", [](Problem& p) { p.mla().c.num_kv_heads = 8; }},
      {"head_size 128: must be kv_lora_rank 512 + qk_rope_head_dim 64", [](Problem& p) { p.mla().c.head_size = 128; }},
      {"head_size_v 128: must be kv_lora_rank 512", [](Problem& p) { p.mla().c.head_size_v = 128; }},
      {"non_causal and per_request_causal exclude each other",
       [](Problem& p) { p.with(ANYATTN_FEATURE_NON_CAUSAL).with(ANYATTN_FEATURE_PER_REQUEST_CAUSAL); }},
      {"alibi and alibi_sqrt exclude each other",
       [](Problem& p) { p.with(ANYATTN_FEATURE_ALIBI).with(ANYATTN_FEATURE_ALIBI_SQRT); }},
      {"kv_scales and kv_scales_per_head exclude each other",
       [](Problem& p) { p.with(ANYATTN_FEATURE_KV_SCALES).with(ANYATTN_FEATURE_KV_SCALES_PER_HEAD); }},
      {"non_causal and chunked_local exclude each other",
       [](Problem& p) { p.with(ANYATTN_FEATURE_NON_CAUSAL).with(ANYATTN_FEATURE_CHUNKED_LOCAL).c.chunk_size = 8; }},
      {"window_left -2", [](Problem& p) { p.with(ANYATTN_FEATURE_WINDOW).c.window_left = -2; }},
      {"window_right -7", [](Problem& p) { p.with(ANYATTN_FEATURE_WINDOW).c.window_right = -7; }},
      {"logits_soft_cap 0", [](Problem& p) { p.with(ANYATTN_FEATURE_SOFT_CAP); }},
      {"logits_soft_cap nan", [](Problem& p) { p.with(ANYATTN_FEATURE_SOFT_CAP).c.logits_soft_cap = kNan; }},
      {"chunk_size 0", [](Problem& p) { p.with(ANYATTN_FEATURE_CHUNKED_LOCAL); }},
      {"top_k 0", [](Problem& p) { p.with(ANYATTN_FEATURE_SPARSE_TOPK); }},
      {"cp_world_size 0", [](Problem& p) { p.with(ANYATTN_FEATURE_CP_DECODE); }},
      {"cp_rank 4: must be below cp_world_size 4",
       [](Problem& p) { p.with(ANYATTN_FEATURE_CP_PREFILL).c.cp_rank = p.c.cp_world_size = 4; }},
      {"cp_interleave 0", [](Problem& p) { p.with(ANYATTN_FEATURE_CP_DECODE).c.cp_world_size = 2; }},
      {"out_block_size 7: must divide num_q_heads * head_size_v = 512",
       [](Problem& p) {
         p.with(ANYATTN_FEATURE_OUT_BLOCK_SCALES).c.out_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN;
         p.c.out_block_size = 7;
       }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.expect);
    Problem problem;
    one.spoil(problem);
    const anyattn_problem c = problem;
    const std::string text = validate_problem(&c);
    CAPTURE(text);
    CHECK(text.find(one.expect) != std::string::npos);
  }
}

TEST_CASE("null_problems_and_null_feature_words_are_refused") {
  CHECK(validate_problem(nullptr) == "problem is null: give an anyattn_problem");
  anyattn_problem problem = Problem();
  problem.features = nullptr;
  CHECK(validate_problem(&problem) == "features is null although num_feature_words is 1");
  problem.num_feature_words = 0;
  CHECK(validate_problem(&problem) == "");
}

TEST_CASE("a_parameter_is_read_only_with_its_feature") {
  Problem problem;
  problem.c.window_left = -99;
  problem.c.logits_soft_cap = kNan;
  problem.c.cp_rank = 77;
  const anyattn_problem c = problem;
  CHECK(validate_problem(&c) == "");
}

TEST_CASE("bits_that_are_not_known_here_are_left_to_the_backends") {
  const uint64_t words[2] = {uint64_t{1} << 60, 1};
  anyattn_problem problem = Problem();
  problem.features = words;
  problem.num_feature_words = 2;
  CHECK(validate_problem(&problem) == "");
}

TEST_CASE("select_says_an_invalid_problem_before_anybody_is_asked") {
  anyattn::test::World world;
  world.add({anyattn::test::plain_plugin("org.one", "ONE")});
  Problem problem;
  problem.c.head_size = 0;
  const Decision decision = world.select(problem);
  CHECK(decision.error == Error::kInvalidProblem);
  CHECK(decision.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(decision.text == "selection: head_size 0: allowed: 1 to 65536");
  CHECK(world.opened.at("/plugins/org.one.so") == 0);
}
