// SPDX-License-Identifier: Apache-2.0
// What FLASH_ATTN answers on a machine without a GPU: supports, sizes and specs from the facts of devices that are not here.
#include <dlfcn.h>

#include <string>
#include <vector>

#include "anyattn/kv_cache.hpp"
#include "anyattn/plugin.h"
#include "anyattn/problem.hpp"
#include "cuda_common/tensor_map.h"
#include "doctest/doctest.h"
#include "flash_cuda/cascade.h"

namespace {

const anyattn_plugin& flash_plugin() {
  static const anyattn_plugin* loaded = [] {
    void* file = dlopen(ANYATTN_PLUGIN_DIR "/flash_cuda/anyattn_flash_cuda.so", RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(file, dlerror());
    const auto enter = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(file, ANYATTN_PLUGIN_ENTRY_NAME));
    const anyattn_plugin* plugin = nullptr;
    REQUIRE(enter(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, nullptr, &plugin, nullptr) == ANYATTN_OK);
    REQUIRE(plugin->num_backends == 1);
    return plugin;
  }();
  return *loaded;
}
const anyattn_backend& flash_attn() { return *flash_plugin().backends[0]; }

// A host with one option, or with none where the value is null, that keeps log lines.
struct OneOptionHost {
  explicit OneOptionHost(const char* value = "auto", const char* key = "kernels") {
    option = {ANYATTN_OPTION_SIZE, 0, key, value};
    host.struct_size = ANYATTN_HOST_SIZE;
    host.abi_version = ANYATTN_ABI_VERSION_CURRENT;
    host.context = this;
    host.log = [](void* context, int32_t, const char* line) { static_cast<OneOptionHost*>(context)->lines.emplace_back(line); };
    host.num_options = value ? 1 : 0;
    host.option_stride = sizeof option;
    host.options = &option;
  }
  OneOptionHost(const OneOptionHost&) = delete;
  OneOptionHost& operator=(const OneOptionHost&) = delete;

  std::vector<std::string> lines;
  anyattn_option option{};
  anyattn_host host{};
};

anyattn_device_facts device(uint32_t major, uint32_t minor, const char* architecture, uint32_t multiprocessors,
                            uint32_t shared_bytes) {
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = ANYATTN_DEVICE_CUDA;
  facts.arch_major = major;
  facts.arch_minor = minor;
  facts.num_multiprocessors = multiprocessors;
  facts.shared_memory_per_block = shared_bytes;
  facts.architecture = architecture;
  facts.name = "test";
  return facts;
}
const anyattn_device_facts kH200 = device(9, 0, "sm_90", 132, 232448), kA100 = device(8, 0, "sm_80", 108, 166912),
                           kL40 = device(8, 9, "sm_89", 142, 101376), kB200 = device(10, 0, "sm_100", 148, 232448);

// Llama-3.1-8B's layer.
struct Asked {
  Asked() {
    problem.struct_size = ANYATTN_PROBLEM_SIZE;
    problem.num_feature_words = 1;
    problem.features = &features;
    problem.num_q_heads = 32;
    problem.num_kv_heads = 8;
    problem.head_size = problem.head_size_v = 128;
    problem.q_dtype = problem.out_dtype = ANYATTN_DTYPE_BFLOAT16;
    problem.kv_cache_dtype = "bfloat16";
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  void set(uint32_t feature) { features |= uint64_t{1} << feature; }

  uint64_t features = 0;
  anyattn_problem problem{};
};

struct Answer {
  std::string reasons;
  anyattn_support_report report{};
};
Answer ask(const anyattn_device_facts& facts, const Asked& asked, const char* value = "auto", const char* key = "kernels") {
  const OneOptionHost host(value, key);
  const anyattn::ReasonText reasons;
  Answer answer;
  answer.report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  REQUIRE(flash_attn().supports(&host.host, &facts, &asked.problem, reasons.sink(), &answer.report, nullptr) == ANYATTN_OK);
  answer.reasons = reasons.get();
  CHECK((answer.report.supported == 1) == answer.reasons.empty());
  return answer;
}

}  // namespace

TEST_CASE("flash_attn_takes_llama_on_ampere_ada_and_hopper") {
  const Asked llama;
  for (const anyattn_device_facts* facts : {&kH200, &kA100, &kL40}) {
    const Answer answer = ask(*facts, llama);
    CHECK(answer.reasons == "");
    CHECK(answer.report.block_size == 64);
    CHECK(answer.report.graph_level == ANYATTN_GRAPH_ALWAYS);
    CHECK(answer.report.query_lengths == ANYATTN_QUERY_ANY);
  }
}

TEST_CASE("flash_attn_refuses_with_the_value_and_what_is_allowed") {
  const auto refusal = [](auto change) {
    Asked asked;
    change(asked);
    return ask(kH200, asked).reasons;
  };
  CHECK(refusal([](Asked& a) { a.problem.head_size = 260; }) == "head_size=260 (allowed: multiples of 8 up to 256)");
  CHECK(refusal([](Asked& a) { a.problem.head_size_v = 36; }) == "head_size_v=36 (allowed: multiples of 8 up to 256)");
  CHECK(refusal([](Asked& a) { a.problem.num_kv_heads = 5; }) ==
        "num_kv_heads=5 for 32 q heads (allowed: a divisor of num_q_heads)");
  CHECK(refusal([](Asked& a) { a.problem.kv_cache_dtype = "int8_per_token_head"; }) ==
        "kv_cache_dtype=int8_per_token_head (allowed: bfloat16, fp8_e4m3)");
  CHECK(refusal([](Asked& a) { a.set(ANYATTN_FEATURE_KV_SCALES); }) == "kv_scales=with bfloat16 (allowed: with fp8_e4m3)");
  CHECK(refusal([](Asked& a) {
          a.problem.q_dtype = ANYATTN_DTYPE_FLOAT32;
          a.problem.kv_cache_dtype = "float32";
        }) == "q_dtype=float32 (allowed: float16, bfloat16)");
  // A query that is refused allows no dtype of a cache: what this backend takes is named.
  CHECK(refusal([](Asked& a) { a.problem.q_dtype = ANYATTN_DTYPE_FLOAT32; }) == "q_dtype=float32 (allowed: float16, bfloat16)");
  CHECK(refusal([](Asked& a) {
          a.problem.q_dtype = ANYATTN_DTYPE_FLOAT32;
          a.problem.kv_cache_dtype = "int8_per_token_head";
        }) ==
        "q_dtype=float32 (allowed: float16, bfloat16); kv_cache_dtype=int8_per_token_head (allowed: float16, bfloat16, "
        "fp8_e4m3)");
  CHECK(refusal([](Asked& a) {
          a.problem.num_q_heads = 3'000'000'000;
          a.problem.num_kv_heads = 1'500'000'000;
        }) == "num_q_heads=3000000000 (allowed: 1 to 65536)");
  CHECK(refusal([](Asked& a) { a.problem.block_size = 3'000'000'000; }) == "block_size=3000000000 (allowed: up to 1048576)");
  CHECK(refusal([](Asked& a) { a.set(ANYATTN_FEATURE_SPARSE_TOPK); }) == "sparse_topk=on (allowed: off)");
  CHECK(refusal([](Asked& a) { a.set(ANYATTN_FEATURE_MLA); }) == "mla=on (allowed: off)");
}

TEST_CASE("flash_attn_reads_fp8_caches_on_hopper_only") {
  Asked asked;
  asked.problem.kv_cache_dtype = "fp8_e4m3";
  asked.set(ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  CHECK(ask(kH200, asked).reasons == "");
  CHECK(ask(kA100, asked).reasons == "kv_cache_dtype=fp8_e4m3 (allowed: bfloat16; fp8_e4m3 on sm_90)");
  asked.problem.kv_cache_dtype = "fp8_e5m2";
  asked.features = 0;
  CHECK(ask(kA100, asked).reasons == "kv_cache_dtype=fp8_e5m2 (allowed: bfloat16; fp8_e4m3 on sm_90)");
  CHECK(ask(kH200, asked).reasons == "kv_cache_dtype=fp8_e5m2 (allowed: bfloat16, fp8_e4m3)");
}

TEST_CASE("flash_attn_takes_queries_of_8_bits_on_hopper_over_a_cache_of_8_bits") {
  const auto answer = [](auto change, const anyattn_device_facts& facts = kH200, const char* kernels = "auto") {
    Asked asked;
    asked.problem.q_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN;
    asked.problem.kv_cache_dtype = "fp8_e4m3";
    asked.set(ANYATTN_FEATURE_QUANTISED_QUERY);
    change(asked);
    return ask(facts, asked, kernels).reasons;
  };
  CHECK(answer([](Asked& a) { a.set(ANYATTN_FEATURE_KV_SCALES_PER_HEAD); }) == "");
  CHECK(answer([](Asked& a) { a.problem.head_size_v = 64; }) == "");
  CHECK(answer([](Asked& a) { a.problem.head_size = 72; }) ==
        "head_size=72 (allowed: multiples of 16 up to 128 with quantised_query)");
  CHECK(answer([](Asked& a) { a.problem.kv_cache_dtype = "bfloat16"; }) ==
        "kv_cache_dtype=bfloat16 (allowed: fp8_e4m3 with quantised_query)");
  CHECK(answer([](Asked& a) { a.problem.out_dtype = ANYATTN_DTYPE_FLOAT32; }) ==
        "out_dtype=float32 (allowed: float16, bfloat16 with quantised_query)");
  CHECK(answer([](Asked& a) { a.problem.q_dtype = ANYATTN_DTYPE_INT8; }) ==
        "q_dtype=int8 (allowed: float8_e4m3fn with quantised_query)");
  CHECK(answer([](Asked& a) { a.problem.block_size = 12; }) == "block_size=12 (allowed: multiples of 8 with quantised_query)");
  CHECK(answer([](Asked&) {}, kH200, "sm80") == "kernels=sm80 (allowed: auto with quantised_query)");
  CHECK(answer([](Asked&) {}, kL40).find("architecture=sm_89 (allowed: sm_90 with quantised_query)") != std::string::npos);
}

TEST_CASE("flash_attn_names_the_devices_it_has_code_for") {
  const Asked llama;
  CHECK(ask(kB200, llama).reasons == "architecture=sm_100 (allowed: sm_80 to sm_90)");
  CHECK(ask(device(7, 5, "sm_75", 40, 65536), llama).reasons == "architecture=sm_75 (allowed: sm_80 to sm_90)");
}

// An impl of llama's layer in the first layout, and what it says at debug level.
struct Impl {
  Impl(const anyattn_device_facts& facts_of, const char* value, const char* key = "kernels", uint64_t features = 0,
       void (*change)(Asked&) = nullptr)
      : facts(facts_of), host(value, key) {
    asked.problem.block_size = 64;
    asked.features = features;
    if (change) change(asked);
    const auto accept = [](void* context, const anyattn_kv_cache_spec* spec) {
      auto& to = *static_cast<Impl*>(context);
      if (to.impl) return;
      CHECK(flash_attn().impl_create(&to.host.host, &to.facts, &to.asked.problem, spec, &to.impl, nullptr) == ANYATTN_OK);
    };
    REQUIRE(flash_attn().kv_cache_spec(&host.host, &facts, &asked.problem, accept, this, nullptr) == ANYATTN_OK);
    REQUIRE(impl);
    REQUIRE(host.lines.size() == 1);
  }
  ~Impl() { flash_attn().impl_destroy(impl); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  // Of the kernels, of shared prefixes.
  std::string line() const { return host.lines[0].substr(0, host.lines[0].rfind("; ")); }
  std::string cascade() const { return host.lines[0].substr(host.lines[0].rfind("; ") + 2); }

  const anyattn_device_facts facts;
  OneOptionHost host;
  Asked asked;
  anyattn_impl* impl = nullptr;
};

TEST_CASE("flash_attn_says_which_kernels_a_device_and_the_option_give") {
  const Asked llama;
  const auto kernels = [](const anyattn_device_facts& facts, const Asked& asked, const char* option = "auto") {
    const std::string said = ask(facts, asked, option).report.kernels;
    return said.substr(0, said.rfind("; "));  // of shared prefixes below
  };
  const std::string hopper = "sm90_decode for queries up to 8, sm90_prefill for longer ones";
  const std::string ampere = "sm80_decode for queries up to 4, sm80_prefill for longer ones";
  CHECK(kernels(kH200, llama) == hopper);
  CHECK(kernels(kA100, llama) == ampere + "; sm90_decode needs sm_90; sm90_prefill needs sm_90");
  const std::string left_out = "; sm90_decode is left out by kernels: sm80; sm90_prefill is left out by kernels: sm80";
  CHECK(kernels(kH200, llama, "sm80") == ampere + left_out);
  const auto changed = [&](auto change) {
    Asked asked;
    change(asked);
    return kernels(kH200, asked);
  };
  CHECK(
      changed([](Asked& a) { a.problem.head_size = a.problem.head_size_v = 80; }) ==
      "sm80_decode for queries up to 4, sm90_prefill for longer ones; sm90_decode needs head sizes of 64, 96, 128, 192 or 256, "
      "of values the same");
  CHECK(changed([](Asked& a) { a.set(ANYATTN_FEATURE_ALIBI); }) ==
        ampere + "; sm90_decode needs scores without ALiBi; sm90_prefill needs scores without ALiBi");
  CHECK(changed([](Asked& a) { a.problem.block_size = 24; }) ==
        "sm80_decode for queries up to 4, sm90_prefill for longer ones; sm90_decode needs block sizes in multiples of 16");
  CHECK(changed([](Asked& a) { a.problem.block_size = 12; }) ==
        ampere + "; sm90_decode needs block sizes in multiples of 16; sm90_prefill needs block sizes in multiples of 8");

  CHECK(ask(kH200, llama, "sm70").reasons == "kernels=sm70 (allowed: auto | sm80)");
  CHECK(Impl(kH200, "sm80").line() == "FLASH_ATTN: kernels " + ampere + left_out);
  CHECK(Impl(kH200, "auto").line() == "FLASH_ATTN: kernels " + hopper);
}

TEST_CASE("flash_attn_says_the_whole_of_it") {
  const auto change = [](Asked& a, uint32_t size, uint32_t block, uint32_t heads, uint32_t feature) {
    a.problem.head_size = a.problem.head_size_v = size;
    a.problem.block_size = block;
    a.problem.num_q_heads = heads;
    a.problem.num_kv_heads = heads == 71 ? 1 : 8;
    a.features = uint64_t{1} << feature;
  };
  int answers = 0;
  for (const anyattn_device_facts* facts : {&kH200, &kA100}) {
    for (const uint32_t size : {64u, 80u, 128u, 256u}) {
      for (const uint32_t block : {1u, 24u, 64u}) {
        for (const uint32_t heads : {8u, 32u, 71u, 136u}) {
          for (const uint32_t feature : {ANYATTN_FEATURE_LSE, ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_BATCH_INVARIANT}) {
            for (const char* cache : {"bfloat16", "fp8_e4m3"}) {
              Asked asked;
              change(asked, size, block, heads, feature);
              asked.problem.kv_cache_dtype = cache;
              const Answer answer = ask(*facts, asked);
              if (!answer.report.supported) continue;
              const std::string said = answer.report.kernels;
              INFO(said);
              CHECK(said.size() + 1 < sizeof answer.report.kernels);
              ++answers;
            }
          }
        }
      }
    }
  }
  CHECK(answers > 100);
}

TEST_CASE("flash_attn_declares_the_options_that_it_takes_where_none_are_given") {
  const Asked llama;
  const std::string unasked = ask(kH200, llama, nullptr).report.kernels;
  REQUIRE(flash_plugin().num_options == 2);
  for (uint32_t i = 0; i < flash_plugin().num_options; ++i) {
    const auto* option = reinterpret_cast<const anyattn_option_info*>(reinterpret_cast<const char*>(flash_plugin().options) +
                                                                      size_t{i} * flash_plugin().option_stride);
    INFO(option->key);
    CHECK(std::string(ask(kH200, llama, option->fallback, option->key).report.kernels) == unasked);
  }
}

TEST_CASE("flash_attn_says_why_there_is_no_cascade") {
  const Asked llama;
  CHECK(ask(kH200, llama, "maybe", "cascade").reasons == "cascade=maybe (allowed: auto | off | always)");
  const auto of = [](uint32_t feature) { return Impl(kH200, "auto", "cascade", uint64_t{1} << feature).cascade(); };
  CHECK(of(ANYATTN_FEATURE_BATCH_INVARIANT) == "no cascade: batch_invariant");
  CHECK(of(ANYATTN_FEATURE_ALIBI) == "no cascade: alibi");
  CHECK(of(ANYATTN_FEATURE_SINKS).find("cascade from ") == 0);
  CHECK(Impl(kH200, "off", "cascade").cascade() == "no cascade: option cascade");
  CHECK(Impl(kH200, "auto", "kernels").cascade().find("cascade from ") == 0);  // the default is auto
  CHECK(Impl(kH200, "always", "cascade").cascade() == "cascade always");
  // What is not measured is not chosen, and may be asked for.
  CHECK(Impl(kA100, "auto", "cascade").cascade() == "no cascade: its gain is measured on sm_90 alone");
  CHECK(Impl(kA100, "always", "cascade").cascade() == "cascade always");
  const auto fp8 = [](Asked& a) { a.problem.kv_cache_dtype = "fp8_e4m3"; };
  CHECK(Impl(kH200, "auto", "cascade", 0, fp8).cascade() == "no cascade: its gain is not measured over fp8_e4m3");
  // One kv head of many query heads: 2048 shared keys pay for no number of requests, and narrow heads never.
  const auto falcon_7b = [](Asked& a) {
    a.problem.num_q_heads = 71;
    a.problem.num_kv_heads = 1;
    a.problem.head_size = a.problem.head_size_v = 64;
  };
  CHECK(Impl(kH200, "auto", "cascade", 0, falcon_7b).cascade() == "cascade from 365 requests that share 4096 tokens");
  const auto narrow = [](Asked& a) {
    a.problem.num_q_heads = 71;
    a.problem.num_kv_heads = 1;
    a.problem.head_size = a.problem.head_size_v = 8;
  };
  CHECK(Impl(kH200, "auto", "cascade", 0, narrow).cascade() == "no cascade: it never pays");
}

TEST_CASE("flash_attn_reports_what_a_shared_prefix_gets") {
  const Asked llama;
  const auto said = [&](const char* option) { return std::string(ask(kH200, llama, option, "cascade").report.kernels); };
  CHECK(said("auto").find("; cascade from ") != std::string::npos);
  CHECK(said("off").find("; no cascade: option cascade") != std::string::npos);
}

TEST_CASE("flash_attn_cascades_where_the_model_says_that_it_pays") {
  namespace flash = anyattn::flash;
  flash::Problem problem{};
  problem.dtype = problem.kv_dtype = problem.out_dtype = flash::kBF16;
  problem.head_size = problem.head_size_v = 128;
  problem.num_q_heads = 32;
  problem.num_kv_heads = 8;
  const auto model = flash::cascade_model({9, 0, 132, 232448}, problem);
  // The fewest requests that share so many keys; measured on an H200, the pass loses with the requests of the last column and wins
  // with those of the one before.
  struct Border {
    int keys, requests, wins, loses;
  };
  for (const Border& b : {Border{512, 191, 256, 64}, Border{1024, 71, 128, 32}, Border{2048, 30, 64, 16},
                          Border{8192, 10, 16, 8}, Border{32768, 6, 8, 4}}) {
    CAPTURE(b.keys);
    int requests = 1;
    while (requests < 1024 && !model.pays(requests, requests, b.keys)) ++requests;
    CHECK(requests == b.requests);
    CHECK(model.pays(b.wins, b.wins, b.keys));
    CHECK(!model.pays(b.loses, b.loses, b.keys));
  }
  CHECK(model.pays(64, 256, 8192));    // four tokens each
  CHECK(!model.pays(256, 256, 64));    // less than a step
  CHECK(!model.pays(1, 4096, 32768));  // the rows of one prefill: the same products again
  // The impl says where the border lies.
  int border = 1;
  while (!model.pays(border, border, 2048)) ++border;
  CHECK(Impl(kH200, "auto", "cascade").cascade() ==
        "cascade from " + std::to_string(border) + " requests that share 2048 tokens");
}

void set_heads(Asked& asked, uint32_t q, uint32_t kv) {
  asked.problem.num_q_heads = q;
  asked.problem.num_kv_heads = kv;
}
void set_size(Asked& asked, uint32_t size) { asked.problem.head_size = asked.problem.head_size_v = size; }

TEST_CASE("flash_attn_chooses_hoppers_decode_by_values") {
  const auto decode = [](void (*change)(Asked&)) {
    const std::string line = Impl(kH200, "auto", "kernels", 0, change).line();
    return line.substr(0, line.find(','));
  };
  const std::string hopper = "FLASH_ATTN: kernels sm90_decode for queries up to ", general = "FLASH_ATTN: kernels sm80_decode";
  CHECK(decode([](Asked& a) { set_size(a, 64); }) == hopper + "8");
  CHECK(decode([](Asked& a) { set_size(a, 96); }) == hopper + "8");
  CHECK(decode([](Asked& a) { set_size(a, 192); }) == hopper + "8");
  CHECK(decode([](Asked& a) { set_size(a, 256); }) == hopper + "8");
  CHECK(decode([](Asked& a) { set_size(a, 80); }).find(general) == 0);
  CHECK(decode([](Asked& a) { a.problem.kv_cache_dtype = "fp8_e4m3"; }) == hopper + "8");
  CHECK(decode([](Asked& a) { a.problem.out_dtype = ANYATTN_DTYPE_FLOAT32; }) == hopper + "8");
  CHECK(decode([](Asked& a) { set_heads(a, 16, 1); }) == hopper + "2");
  CHECK(decode([](Asked& a) { set_heads(a, 32, 1); }) == hopper + "1");
  CHECK(decode([](Asked& a) { set_heads(a, 40, 2); }) == hopper + "1");
  CHECK(decode([](Asked& a) { set_heads(a, 17, 1); }).find(general) == 0);  // no equal parts of 8 to 16
  CHECK(decode([](Asked& a) { a.problem.block_size = 24; }).find(general) == 0);
  CHECK(decode([](Asked& a) { a.set(ANYATTN_FEATURE_ALIBI); }).find(general) == 0);
}

TEST_CASE("a_tensor_that_the_copy_engine_refuses_is_named_with_all_its_strides") {
  anyattn::cuda::BoxedTensor tensor{};
  tensor.data = reinterpret_cast<void*>(4096);
  tensor.rank = 4;
  tensor.strides[0] = 256;
  tensor.strides[1] = static_cast<uint64_t>(-512);
  tensor.strides[2] = uint64_t{1} << 40;
  CHECK(anyattn::cuda::tensor_map_refusal(tensor) ==
        "the copy engine takes no tensor at 4096 with strides of 256, -512 and 1099511627776 bytes; allowed: addresses and "
        "strides that are multiples of 16 bytes, strides from 0 to below 2^40");
}

TEST_CASE("flash_attn_sizes_memory_by_the_limits_alone") {
  const Impl made(kH200, "off", "cascade");
  // Enough for every batch: the bytes grow with each limit and do not depend on anything else.
  anyattn_limits limits{ANYATTN_LIMITS_SIZE, 8, 64, 16, 1024, 16};
  anyattn_memory small{}, large{};
  small.struct_size = large.struct_size = ANYATTN_MEMORY_SIZE;
  REQUIRE(flash_attn().memory(made.impl, &limits, &small, nullptr) == ANYATTN_OK);
  limits.max_num_reqs = 256;
  limits.max_num_tokens = 8192;
  REQUIRE(flash_attn().memory(made.impl, &limits, &large, nullptr) == ANYATTN_OK);
  CHECK(small.scratch_bytes > 0);
  CHECK(large.scratch_bytes == small.scratch_bytes);
  CHECK(large.persistent_bytes > small.persistent_bytes);
  // Room for the pass over a shared prefix where a batch within the limits may gain by it.
  const Impl sharing(kH200, "auto", "cascade");
  anyattn_memory with = large;
  REQUIRE(flash_attn().memory(sharing.impl, &limits, &with, nullptr) == ANYATTN_OK);
  CHECK(with.scratch_bytes > large.scratch_bytes);
  limits.max_num_reqs = 1;
  with = small;
  REQUIRE(flash_attn().memory(sharing.impl, &limits, &with, nullptr) == ANYATTN_OK);
  CHECK(with.scratch_bytes == small.scratch_bytes);

  // No driver here: a sentence, no crash.
  char words[400] = "";
  anyattn_error error{words, sizeof words, 0, 0, 0};
  uint32_t level = 0;
  const int32_t status = flash_attn().warmup(made.impl, &limits, nullptr, nullptr, &level, &error);
  if (status != ANYATTN_OK) CHECK(std::string(words).find("FLASH_ATTN: ") == 0);
}
