// SPDX-License-Identifier: Apache-2.0
// Each field of the problem reaches the backends unchanged: for each there is a backend whose verdict it flips.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::plugin_for;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

// A valid problem and the same with one field changed. The backend takes the first one's value only.
struct Flip {
  std::function<void(Problem&)> base;
  std::function<void(Problem&)> change;
};

using Edit = std::function<void(Problem&)>;

void nothing(Problem&) {}

Edit set(uint32_t feature) {
  return [feature](Problem& p) { p.with(feature); };
}

Edit both(const Edit& one, const Edit& other) {
  return [one, other](Problem& p) {
    one(p);
    other(p);
  };
}

void fp8_out(Problem& p) { p.c.out_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN; }

void cp(Problem& p) {
  p.with(ANYATTN_FEATURE_CP_DECODE);
  p.c.cp_world_size = 4;
  p.c.cp_interleave = 1;
}

const std::map<std::string, Flip>& flips() {
  static const std::map<std::string, Flip> table{
      {"non_causal", {nothing, set(ANYATTN_FEATURE_NON_CAUSAL)}},
      {"per_request_causal", {nothing, set(ANYATTN_FEATURE_PER_REQUEST_CAUSAL)}},
      {"window", {nothing, set(ANYATTN_FEATURE_WINDOW)}},
      {"soft_cap", {nothing, both(set(ANYATTN_FEATURE_SOFT_CAP), [](Problem& p) { p.c.logits_soft_cap = 30; })}},
      {"alibi", {nothing, set(ANYATTN_FEATURE_ALIBI)}},
      {"alibi_sqrt", {nothing, set(ANYATTN_FEATURE_ALIBI_SQRT)}},
      {"alibi_symmetric", {nothing, set(ANYATTN_FEATURE_ALIBI_SYMMETRIC)}},
      {"sinks", {nothing, set(ANYATTN_FEATURE_SINKS)}},
      {"mm_prefix", {nothing, set(ANYATTN_FEATURE_MM_PREFIX)}},
      {"sparse_topk", {nothing, both(set(ANYATTN_FEATURE_SPARSE_TOPK), [](Problem& p) { p.c.top_k = 2048; })}},
      {"chunked_local", {nothing, both(set(ANYATTN_FEATURE_CHUNKED_LOCAL), [](Problem& p) { p.c.chunk_size = 8192; })}},
      {"cp_decode", {nothing, cp}},
      {"cp_prefill", {cp, set(ANYATTN_FEATURE_CP_PREFILL)}},
      {"lse", {nothing, set(ANYATTN_FEATURE_LSE)}},
      {"batch_invariant", {nothing, set(ANYATTN_FEATURE_BATCH_INVARIANT)}},
      {"quantised_query",
       {nothing, both(set(ANYATTN_FEATURE_QUANTISED_QUERY), [](Problem& p) { p.c.q_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN; })}},
      {"kv_scales", {nothing, set(ANYATTN_FEATURE_KV_SCALES)}},
      {"kv_scales_per_head", {nothing, set(ANYATTN_FEATURE_KV_SCALES_PER_HEAD)}},
      {"out_scale", {nothing, both(set(ANYATTN_FEATURE_OUT_SCALE), fp8_out)}},
      {"out_block_scales",
       {nothing, both(set(ANYATTN_FEATURE_OUT_BLOCK_SCALES), both(fp8_out, [](Problem& p) { p.c.out_block_size = 16; }))}},
      {"mla", {nothing, [](Problem& p) { p.mla(); }}},
      {"kv_transfer", {nothing, set(ANYATTN_FEATURE_KV_TRANSFER)}},
      {"graph", {nothing, set(ANYATTN_FEATURE_GRAPH)}},
      {"key_source", {nothing, [](Problem& p) { p.ragged(); }}},
      {"phase", {nothing, [](Problem& p) { p.c.phase = ANYATTN_PHASE_DECODE; }}},
      {"num_q_heads", {nothing, [](Problem& p) { p.c.num_q_heads = 16; }}},
      {"num_kv_heads", {nothing, [](Problem& p) { p.c.num_kv_heads = 4; }}},
      {"head_size", {nothing, [](Problem& p) { p.c.head_size = 72; }}},
      {"head_size_v", {nothing, [](Problem& p) { p.c.head_size_v = 72; }}},
      {"q_dtype", {nothing, [](Problem& p) { p.c.q_dtype = ANYATTN_DTYPE_FLOAT32; }}},
      {"out_dtype", {nothing, [](Problem& p) { p.c.out_dtype = ANYATTN_DTYPE_FLOAT32; }}},
      {"block_size", {nothing, [](Problem& p) { p.c.block_size = 32; }}},
      {"kv_cache_dtype",
       {[](Problem& p) { p.c.kv_cache_dtype = "bfloat16"; }, [](Problem& p) { p.c.kv_cache_dtype = "fp8_e4m3"; }}},
      {"kv_lora_rank",
       {[](Problem& p) { p.mla(); },
        [](Problem& p) {
          p.c.kv_lora_rank = p.c.head_size_v = 256;
          p.c.head_size = 320;
        }}},
      {"qk_nope_head_dim", {[](Problem& p) { p.mla(); }, [](Problem& p) { p.c.qk_nope_head_dim = 64; }}},
      {"qk_rope_head_dim",
       {[](Problem& p) { p.mla(); },
        [](Problem& p) {
          p.c.qk_rope_head_dim = 32;
          p.c.head_size = 544;
        }}},
      {"v_head_dim", {[](Problem& p) { p.mla(); }, [](Problem& p) { p.c.v_head_dim = 64; }}},
      {"window_left", {set(ANYATTN_FEATURE_WINDOW), [](Problem& p) { p.c.window_left = 127; }}},
      {"window_right", {set(ANYATTN_FEATURE_WINDOW), [](Problem& p) { p.c.window_right = 127; }}},
      {"logits_soft_cap",
       {both(set(ANYATTN_FEATURE_SOFT_CAP), [](Problem& p) { p.c.logits_soft_cap = 30; }),
        [](Problem& p) { p.c.logits_soft_cap = 50; }}},
      {"chunk_size",
       {both(set(ANYATTN_FEATURE_CHUNKED_LOCAL), [](Problem& p) { p.c.chunk_size = 8; }),
        [](Problem& p) { p.c.chunk_size = 9; }}},
      {"top_k", {both(set(ANYATTN_FEATURE_SPARSE_TOPK), [](Problem& p) { p.c.top_k = 8; }), [](Problem& p) { p.c.top_k = 9; }}},
      {"cp_world_size", {cp, [](Problem& p) { p.c.cp_world_size = 8; }}},
      {"cp_rank", {cp, [](Problem& p) { p.c.cp_rank = 3; }}},
      {"cp_interleave", {cp, [](Problem& p) { p.c.cp_interleave = 16; }}},
      {"out_block_size",
       {both(set(ANYATTN_FEATURE_OUT_BLOCK_SCALES), both(fp8_out, [](Problem& p) { p.c.out_block_size = 16; })),
        [](Problem& p) { p.c.out_block_size = 32; }}},
      {"graph_level", {set(ANYATTN_FEATURE_GRAPH), [](Problem& p) { p.c.graph_level = ANYATTN_GRAPH_ALWAYS; }}},
  };
  return table;
}

}  // namespace

TEST_CASE("every_field_except_attention_type_flips_a_verdict") {
  for (const Field& field : fields()) {
    if (field.name == "attention_type") continue;  // a label for rules, tested below
    CAPTURE(field.name);
    const auto flip = flips().find(std::string(field.name));
    REQUIRE(flip != flips().end());
    Problem problem;
    flip->second.base(problem);

    World world;
    auto plugin = plugin_for("org.flip", "FLIP", std::string(field.name), field.text(problem));
    plugin.touch_table = [](anyattn_backend& table) {  // both families: this backend looks at one field only
      table.forward = [](anyattn_impl*, const anyattn_metadata*, const anyattn_forward_args*, anyattn_error*) {
        return ANYATTN_OK;
      };
      table.forward_mqa = [](anyattn_impl*, const anyattn_metadata*, const anyattn_mqa_args*, anyattn_error*) {
        return ANYATTN_OK;
      };
    };
    world.add({plugin});
    const Decision takes = world.select(problem, "FLIP");
    CAPTURE(takes.text);
    CHECK(takes.ok());

    flip->second.change(problem);
    const Decision refuses = world.select(problem, "FLIP");
    CAPTURE(refuses.text);
    REQUIRE(refuses.candidates.size() == 1);
    CHECK(refuses.candidates[0].verdict == Verdict::kRefused);
    CHECK(refuses.candidates[0].reasons[0].field == field.name);
    CHECK(refuses.candidates[0].reasons[0].wanted == field.text(refuses.problem.view()));
  }
}

TEST_CASE("attention_type_flips_a_rule") {
  World world;
  world.add({anyattn::test::plain_plugin("org.a", "A"), anyattn::test::plain_plugin("org.b", "B")});
  anyattn::config::Rule rule;
  rule.when = {{"attention_type", "encoder_decoder", {"f:1"}}};
  rule.backend = "B";
  world.config.rules = {rule};
  Problem problem;
  CHECK(world.select(problem).decode().backend.key.name == "A");
  problem.c.attention_type = ANYATTN_TYPE_ENCODER_DECODER;
  CHECK(world.select(problem).decode().backend.key.name == "B");
}
