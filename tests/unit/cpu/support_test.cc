// SPDX-License-Identifier: Apache-2.0
// What supports answers: every reason at once, in words; and which kernels then run.
#include <cstdio>

#include "attn_case.h"
#include "doctest/doctest.h"

using namespace anyattn::cpu_test;

namespace {

struct Answer {
  ReasonList reasons;
  anyattn_support_report report{};
  bool names(uint32_t id, const std::string& field) const {
    for (const ReasonList::Reason& reason : reasons.reasons)
      if (reason.id == id && reason.field == field) return true;
    return false;
  }
};

Answer ask(const SmallHost& host, const char* backend, const anyattn_problem& problem) {
  Answer answer;
  answer.report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  REQUIRE(host.backend(backend).supports(host.get(), &cpu_device(), &problem, answer.reasons.sink(), &answer.report, nullptr) ==
          ANYATTN_OK);
  CHECK((answer.report.supported == 1) == answer.reasons.reasons.empty());
  return answer;
}

// CPU_ATTN's answer to the smallest problem with one change.
template <class Change>
Answer ask_attn(Change change) {
  const SmallHost host;
  AttnCase test;
  const char* dtype_text = nullptr;
  uint64_t features = 0;
  anyattn_problem problem = problem_of(test, features, dtype_text);
  change(problem, features);
  return ask(host, "CPU_ATTN", problem);
}

anyattn_problem mla_problem(const uint64_t& features) {
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_feature_words = 1;
  problem.features = &features;
  problem.num_q_heads = 128;
  problem.num_kv_heads = 1;
  problem.head_size = 576;
  problem.head_size_v = 512;
  problem.q_dtype = problem.out_dtype = ANYATTN_DTYPE_BFLOAT16;
  problem.block_size = 16;
  problem.kv_cache_dtype = "bfloat16";
  problem.kv_lora_rank = 512;
  problem.qk_nope_head_dim = 128;
  problem.qk_rope_head_dim = 64;
  problem.v_head_dim = 128;
  return problem;
}

constexpr uint64_t kMla = uint64_t{1} << ANYATTN_FEATURE_MLA;

}  // namespace

TEST_CASE("supports_names_each_feature_that_is_not_done") {
  for (const auto& [feature, name] : {std::pair{ANYATTN_FEATURE_SPARSE_TOPK, "sparse_topk"},
                                      {ANYATTN_FEATURE_CHUNKED_LOCAL, "chunked_local"},
                                      {ANYATTN_FEATURE_QUANTISED_QUERY, "quantised_query"},
                                      {ANYATTN_FEATURE_OUT_BLOCK_SCALES, "out_block_scales"}}) {
    const uint32_t bit = feature;
    const Answer plain = ask_attn([&](anyattn_problem&, uint64_t& features) { features = uint64_t{1} << bit; });
    CHECK_MESSAGE(plain.names(ANYATTN_REASON_FEATURE, name), name);
    CHECK(plain.reasons.reasons.size() == 1);
  }
  CHECK(ask_attn([](anyattn_problem&, uint64_t& features) {
          features = uint64_t{1} << 40;
        }).names(ANYATTN_REASON_FEATURE_UNKNOWN, "feature_40"));
  CHECK(ask_attn([](anyattn_problem&, uint64_t& features) { features = kMla; }).names(ANYATTN_REASON_MLA, "mla"));
}

TEST_CASE("supports_reads_feature_words_past_the_first") {
  const Answer answer = ask_attn([](anyattn_problem& problem, uint64_t&) {
    static const uint64_t words[2] = {0, 2};
    problem.features = words;
    problem.num_feature_words = 2;
  });
  CHECK(answer.names(ANYATTN_REASON_FEATURE_UNKNOWN, "feature_65"));
}

TEST_CASE("supports_flips_on_every_field_that_matters") {
  const auto refused = [](uint32_t id, const char* field, auto change) {
    CHECK_MESSAGE(ask_attn(change).names(id, field), field);
  };
  using P = anyattn_problem;
  using F = uint64_t;
  refused(ANYATTN_REASON_HEAD_SIZE, "head_size", [](P& p, F&) { p.head_size = 12; });
  refused(ANYATTN_REASON_HEAD_SIZE, "head_size", [](P& p, F&) { p.head_size = 584; });
  refused(ANYATTN_REASON_HEAD_SIZE, "head_size_v", [](P& p, F&) { p.head_size_v = 0; });
  refused(ANYATTN_REASON_HEADS, "num_kv_heads", [](P& p, F&) { p.num_kv_heads = 3; });
  refused(ANYATTN_REASON_HEADS, "num_kv_heads", [](P& p, F&) { p.num_kv_heads = 0; });
  refused(ANYATTN_REASON_DTYPE, "q_dtype", [](P& p, F&) { p.q_dtype = ANYATTN_DTYPE_INT8; });
  refused(ANYATTN_REASON_DTYPE, "out_dtype", [](P& p, F&) { p.out_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN; });
  for (const char* name : {"fp8_e4m3fn", "fp8_ds_mla", "int8", "int4", "nvfp4", "turboquant_4bit_nc", "FP8", "auto", ""})
    refused(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", [name](P& p, F&) { p.kv_cache_dtype = name; });
  refused(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", [](P& p, F&) { p.kv_cache_dtype = nullptr; });
  refused(ANYATTN_REASON_KEY_SOURCE, "key_source", [](P& p, F&) { p.key_source = 2; });
  refused(ANYATTN_REASON_PHASE, "phase", [](P& p, F&) { p.phase = 3; });
  refused(ANYATTN_REASON_GRAPH_LEVEL, "graph_level",
          [](P& p, F& f) { f = F{1} << ANYATTN_FEATURE_GRAPH, p.graph_level = ANYATTN_GRAPH_ALWAYS; });
  refused(ANYATTN_REASON_PARAMETER, "window_left", [](P& p, F& f) { f = F{1} << ANYATTN_FEATURE_WINDOW, p.window_left = -2; });
  refused(ANYATTN_REASON_PARAMETER, "logits_soft_cap",
          [](P& p, F& f) { f = F{1} << ANYATTN_FEATURE_SOFT_CAP, p.logits_soft_cap = 0; });
  refused(ANYATTN_REASON_PARAMETER, "cp_rank",
          [](P& p, F& f) { f = F{1} << ANYATTN_FEATURE_CP_DECODE, p.cp_world_size = 2, p.cp_rank = 2; });
  refused(ANYATTN_REASON_COMBINATION, "cp_world_size",
          [](P& p, F& f) { f = F{1} << ANYATTN_FEATURE_CP_PREFILL, p.cp_world_size = 2, p.key_source = ANYATTN_KEYS_RAGGED; });
  refused(ANYATTN_REASON_COMBINATION, "non_causal",
          [](P&, F& f) { f = (F{1} << ANYATTN_FEATURE_NON_CAUSAL) | (F{1} << ANYATTN_FEATURE_PER_REQUEST_CAUSAL); });
  refused(ANYATTN_REASON_COMBINATION, "alibi",
          [](P&, F& f) { f = (F{1} << ANYATTN_FEATURE_ALIBI) | (F{1} << ANYATTN_FEATURE_ALIBI_SQRT); });
}

TEST_CASE("supports_gives_all_reasons_at_once_and_impl_create_repeats_them") {
  const auto change = [](anyattn_problem& p, uint64_t& f) {
    p.head_size = 7;
    p.q_dtype = ANYATTN_DTYPE_INT8;
    p.kv_cache_dtype = "nvfp4";
    f = uint64_t{1} << ANYATTN_FEATURE_SPARSE_TOPK;
  };
  CHECK(ask_attn(change).reasons.reasons.size() == 4);
  const SmallHost host;
  AttnCase test;
  const char* dtype_text = nullptr;
  uint64_t features = 0;
  anyattn_problem problem = problem_of(test, features, dtype_text);
  change(problem, features);
  anyattn_impl* impl = nullptr;
  ErrorText text;
  CHECK(host.backend("CPU_ATTN").impl_create(host.get(), &cpu_device(), &problem, nullptr, &impl, text.get()) ==
        ANYATTN_UNSUPPORTED);
  CHECK(std::string(text.text).find("head_size=7 (allowed: multiples of 8 up to 576)") != std::string::npos);
  CHECK(std::string(text.text).find("kv_cache_dtype=nvfp4 (allowed: float32, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2, "
                                    "int8_per_token_head, fp8_per_token_head, int4_per_token_head)") != std::string::npos);
}

TEST_CASE("supports_names_head_size_and_format_where_four_bits_cannot_be_rotated") {
  for (const uint32_t size : {8u, 80u, 96u, 112u, 120u}) {
    CAPTURE(size);
    const auto wide = ask_attn([size](anyattn_problem& p, uint64_t&) {
      p.kv_cache_dtype = "int4_per_token_head";
      p.head_size = p.head_size_v = size;
    });
    CHECK(wide.names(ANYATTN_REASON_HEAD_SIZE, "head_size"));
    CHECK(wide.names(ANYATTN_REASON_HEAD_SIZE, "head_size_v"));
    CHECK(wide.reasons.reasons.at(0).wanted == std::to_string(size) + " with int4_per_token_head");
  }
  for (const uint32_t size : {16u, 64u, 128u, 256u, 512u})
    CHECK(ask_attn([size](anyattn_problem& p, uint64_t&) {
            p.kv_cache_dtype = "int4_per_token_head";
            p.head_size = p.head_size_v = size;
          }).reasons.reasons.empty());
}

TEST_CASE("supports_keeps_scales_of_the_call_from_rows_that_have_their_own") {
  for (const char* name : {"int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"})
    for (const uint32_t feature : {ANYATTN_FEATURE_KV_SCALES, ANYATTN_FEATURE_KV_SCALES_PER_HEAD})
      CHECK(ask_attn([&](anyattn_problem& p, uint64_t& f) {
              p.kv_cache_dtype = name, p.head_size = p.head_size_v = 64, f = uint64_t{1} << feature;
            }).names(ANYATTN_REASON_COMBINATION, "kv_scales"));
  CHECK(ask_attn([](anyattn_problem&, uint64_t& f) {
          f = (uint64_t{1} << ANYATTN_FEATURE_KV_SCALES) | (uint64_t{1} << ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
        }).names(ANYATTN_REASON_COMBINATION, "kv_scales"));
}

TEST_CASE("supports_prefers_a_block_size_and_takes_any") {
  const Answer preferred = ask_attn([](anyattn_problem& p, uint64_t&) { p.block_size = 0; });
  CHECK(preferred.report.supported == 1);
  CHECK(preferred.report.block_size == 64);
  CHECK(preferred.report.block_size_multiple == 1);
  const Answer given =
      ask_attn([](anyattn_problem& p, uint64_t& f) { p.block_size = 17, f = uint64_t{1} << ANYATTN_FEATURE_LSE; });
  CHECK(given.report.block_size == 17);
  CHECK(given.report.lse_bases == (ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2));
  CHECK(ask_attn([](anyattn_problem& p, uint64_t&) {
          p.key_source = ANYATTN_KEYS_RAGGED, p.kv_cache_dtype = nullptr;
        }).report.supported == 1);
}

TEST_CASE("supports_of_mla_refuses_plain_features_by_name") {
  const SmallHost host;
  uint64_t features = kMla;
  CHECK(ask(host, "CPU_MLA", mla_problem(features)).report.supported == 1);
  for (const auto& [feature, name] : {std::pair{ANYATTN_FEATURE_ALIBI, "alibi"},
                                      {ANYATTN_FEATURE_ALIBI_SQRT, "alibi_sqrt"},
                                      {ANYATTN_FEATURE_ALIBI_SYMMETRIC, "alibi_symmetric"},
                                      {ANYATTN_FEATURE_WINDOW, "window"},
                                      {ANYATTN_FEATURE_SOFT_CAP, "soft_cap"},
                                      {ANYATTN_FEATURE_SINKS, "sinks"},
                                      {ANYATTN_FEATURE_MM_PREFIX, "mm_prefix"},
                                      {ANYATTN_FEATURE_SPARSE_TOPK, "sparse_topk"}}) {
    features = kMla | (uint64_t{1} << feature);
    CHECK_MESSAGE(ask(host, "CPU_MLA", mla_problem(features)).names(ANYATTN_REASON_FEATURE, name), name);
  }
  features = 0;
  CHECK(ask(host, "CPU_MLA", mla_problem(features)).names(ANYATTN_REASON_MLA, "mla"));
  features = kMla;
  anyattn_problem problem = mla_problem(features);
  problem.kv_lora_rank = 500;
  problem.v_head_dim = 0;
  problem.qk_nope_head_dim = 3;
  const Answer answer = ask(host, "CPU_MLA", problem);
  for (const char* field : {"kv_lora_rank", "v_head_dim", "qk_nope_head_dim"})
    CHECK_MESSAGE(answer.names(ANYATTN_REASON_MLA_SIZE, field), field);
  CHECK(answer.names(ANYATTN_REASON_HEAD_SIZE, "head_size"));
}

TEST_CASE("isa_option_forces_a_lower_set_and_the_log_says_which_runs") {
  const auto kernels_of = [](const SmallHost& host) {
    AttnCase test;
    const char* dtype_text = nullptr;
    const anyattn_problem problem = problem_of(test, test.features, dtype_text);
    const anyattn_backend& backend = host.backend("CPU_ATTN");
    Specs specs;
    if (backend.kv_cache_spec(host.get(), &cpu_device(), &problem, &Specs::accept, &specs, nullptr) != ANYATTN_OK)
      return std::string("refused");
    anyattn_impl* impl = nullptr;
    REQUIRE(backend.impl_create(host.get(), &cpu_device(), &problem, &specs.at(0), &impl, nullptr) == ANYATTN_OK);
    backend.impl_destroy(impl);
    REQUIRE(host.log().size() == 1);
    return host.log()[0];
  };
  for (const std::string& isa : runnable_isas()) CHECK(kernels_of(SmallHost(1, isa)) == "CPU_ATTN: kernels " + isa);
  CHECK(kernels_of(SmallHost(1, "auto")) == "CPU_ATTN: kernels " + runnable_isas()[0]);
  SmallHost old;
  old.set_isa_bits(0);
  CHECK(kernels_of(old) == "CPU_ATTN: kernels portable");
}

TEST_CASE("isa_of_tiles_is_not_chosen_without_any_one_set_that_its_kernels_use") {
  if (runnable_isas()[0] != "amx_bf16") {
    MESSAGE("this machine does not run amx_bf16");
    return;
  }
  for (const uint64_t missing :
       {ANYATTN_CPU_SSE4_2, ANYATTN_CPU_AVX2, ANYATTN_CPU_FMA, ANYATTN_CPU_F16C, ANYATTN_CPU_AVX512, ANYATTN_CPU_AVX512_BF16,
        ANYATTN_CPU_AVX512_VBMI, ANYATTN_CPU_AMX_TILE, ANYATTN_CPU_AMX_BF16, ANYATTN_CPU_AMX_INT8}) {
    CAPTURE(missing);
    SmallHost host(1, "amx_bf16");
    host.set_isa_bits(isa_of_this_machine() & ~missing);
    AttnCase test;
    const char* dtype_text = nullptr;
    const Answer answer = ask(host, "CPU_ATTN", problem_of(test, test.features, dtype_text));
    CHECK(answer.names(ANYATTN_REASON_OPTION, "isa"));
  }
}

TEST_CASE("isa_option_of_another_processor_or_unknown_is_a_reason") {
  for (const char* isa : {"avx512", "sse9", ""}) {
    SmallHost host(1, isa);
    host.set_isa_bits(ANYATTN_CPU_SSE4_2);
    AttnCase test;
    const char* dtype_text = nullptr;
    const Answer answer = ask(host, "CPU_ATTN", problem_of(test, test.features, dtype_text));
    REQUIRE(answer.names(ANYATTN_REASON_OPTION, "isa"));
    CHECK(answer.reasons.reasons[0].wanted == isa);
    CHECK(answer.reasons.reasons[0].allowed.find("portable") != std::string::npos);
  }
}

TEST_CASE("kernel_objects_define_no_weak_symbol") {
  // A weak symbol with AVX code could replace the baseline's copy of the same inline function.
  FILE* pipe = popen("nm -C " ANYATTN_CPU_KERNEL_OBJECTS " 2>&1", "r");
  REQUIRE(pipe);
  char line[512];
  int symbols = 0, tables = 0;
  while (std::fgets(line, sizeof line, pipe)) {
    const std::string text = line;
    ++symbols;
    for (const char* weak : {" W ", " V ", " w ", " v ", " u "}) CHECK_MESSAGE(text.find(weak) == std::string::npos, text);
    tables += text.find("anyattn::cpu::kKernels") != std::string::npos;
  }
  CHECK(pclose(pipe) == 0);
  CHECK(symbols > 20);
  CHECK(tables >= 1);
}

TEST_CASE("plugin_lists_its_options_and_both_backends") {
  const anyattn_plugin& plugin = cpu_plugin();
  CHECK(std::string(plugin.id) == "org.anyattn.cpu");
  REQUIRE(plugin.num_options == 1);
  CHECK(std::string(plugin.options->key) == "isa");
  REQUIRE(plugin.num_backends == 2);
  CHECK((plugin.backends[0]->forward != nullptr));
  CHECK((plugin.backends[0]->forward_mqa == nullptr));
  CHECK((plugin.backends[1]->forward == nullptr));
  CHECK((plugin.backends[1]->forward_mqa != nullptr));
  CHECK((plugin.backends[1]->context_gather != nullptr));
  CHECK((plugin.backends[1]->forward_mha != nullptr));
  CHECK((plugin.backends[1]->merge_states != nullptr));
}
