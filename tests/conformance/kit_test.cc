// SPDX-License-Identifier: Apache-2.0
// The kit against plugins: right ones pass every case, each wrong one is caught, and the report says by what.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "anyattn/conformance/conformance.h"
#include "anyattn/host.h"
#include "heap_watch.h"

using namespace anyattn::conformance;

namespace {

std::string naive(const std::string& name) { return std::string(ANYATTN_NAIVE_DIR) + "/" + name + "/anyattn_" + name + ".so"; }

BackendReport run_naive(const std::string& name, const std::string& filter, Options options = {}) {
  options.backend = "NAIVE_ATTN";
  options.name_filter = filter;
  return run(naive(name), options).backends.at(0);
}

const CaseResult& result_of(const BackendReport& report, const std::string& name) {
  const auto at = std::find_if(report.cases.begin(), report.cases.end(), [&](const CaseResult& r) { return r.c.name == name; });
  REQUIRE_MESSAGE(at != report.cases.end(), name);
  return *at;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The mutant fails `failing` for a reason that has `words`, and still passes the case that does not touch its mistake.
void check_mutant(const std::string& mutant, const std::string& filter, const std::string& failing, const std::string& words) {
  const BackendReport report = run_naive(mutant, filter);
  const CaseResult& result = result_of(report, failing);

  CHECK_FALSE(report.ok());
  CHECK(result.verdict == Verdict::kFailed);
  CHECK_MESSAGE(contains(result.message, words), result.message);
  CHECK(report.count(Verdict::kPassed) > 0);
}

// A dump of the small model's q, k and v; empty with a printed line where it cannot be made.
std::string stories_file() {
  const char* shared = std::getenv("ANYATTN_SHARED_DIR");
  const std::string script = std::string(shared ? shared : ANYATTN_SOURCE_DIR "/../shared") + "/tools/stories_reference.py";
  const std::string file = ANYATTN_NAIVE_DIR "/stories_attention.bin";
  if (std::filesystem::exists(script)) {
    const std::string command = "python3 '" + script + "' --attention '" + file + "' > /dev/null 2>&1";
    if (std::filesystem::exists(file) || std::system(command.c_str()) == 0) return file;
  }
  const char* require_all = std::getenv("ANYATTN_REQUIRE_ALL");
  if (require_all && std::string(require_all) == "1") FAIL("real q, k, v are wanted and cannot be made with " << script);
  return {};
}

void check_passes_all(const std::string& file, const std::string& backend) {
  Options options;
  options.backend = backend;
  options.stories_file = stories_file();

  const Report report = run(file, options);

  std::ostringstream text;
  print_report(report, false, text);
  std::cout << text.str();
  CHECK_MESSAGE(report.ok(), text.str());
  CHECK(report.backends.at(0).worst_ratio() <= 1.0);
  CHECK(report.backends.at(0).worst_ratio() > 0.0);
  // What random numbers do not show: logits that leave the range of e^x in float32.
  if (!options.stories_file.empty() && backend.ends_with("_ATTN"))
    CHECK(result_of(report.backends.at(0), "stories/layer_1/float32").max_score > 190);
  if (options.stories_file.empty())
    std::cout << "SKIPPED: real q, k and v: ../shared or python3 is missing; everything else ran\n";
}

}  // namespace

// Under a sanitizer the tests' own plugin would take minutes; the CPU backends take the kit through the same cases there.
#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("naive_attn_passes_the_small_grid") { MESSAGE("SKIPPED: this grid runs in the release build only"); }
TEST_CASE("naive_mla_passes_the_small_grid") { MESSAGE("SKIPPED: this grid runs in the release build only"); }
#else
TEST_CASE("naive_attn_passes_the_small_grid") { check_passes_all(naive("naive"), "NAIVE_ATTN"); }
TEST_CASE("naive_mla_passes_the_small_grid") { check_passes_all(naive("naive"), "NAIVE_MLA"); }
#endif
#ifdef ANYATTN_CPU_PLUGIN
TEST_CASE("cpu_attn_passes_the_small_grid") { check_passes_all(ANYATTN_CPU_PLUGIN, "CPU_ATTN"); }
TEST_CASE("cpu_mla_passes_the_small_grid") { check_passes_all(ANYATTN_CPU_PLUGIN, "CPU_MLA"); }
// The grid itself runs on the best set of the machine, the masks below leave AVX2 and less.
TEST_CASE("cpu_attn_reads_and_writes_every_format_on_lower_sets_too") {
  for (const char* isa : {"avx512_bf16", "avx512"}) {
    Options options;
    options.backend = "CPU_ATTN";
    options.plugin_options = {{"isa", isa}};
    options.must_pass = "# a machine may lack the set\n";
    options.name_filter = "format/prefill*";
    const BackendReport report = run(ANYATTN_CPU_PLUGIN, options).backends.at(0);
    CAPTURE(isa);
    for (const CaseResult& result : report.cases)
      CHECK_MESSAGE(result.verdict != Verdict::kFailed, result.c.name << ": " << result.message);
  }
}
TEST_CASE("cpu_attn_passes_with_every_instruction_set_masked_in_turn") {
  for (const uint64_t mask :
       {uint64_t{0}, ANYATTN_CPU_SSE4_2, ANYATTN_CPU_SSE4_2 | ANYATTN_CPU_AVX2 | ANYATTN_CPU_FMA | ANYATTN_CPU_F16C}) {
    for (const char* filter : {"feature/*", "bug/3*", "format/rows*"}) {
      Options options;
      options.backend = "CPU_ATTN";
      options.isa_mask = mask;
      options.name_filter = filter;
      const BackendReport report = run(ANYATTN_CPU_PLUGIN, options).backends.at(0);
      CAPTURE(mask);
      for (const CaseResult& result : report.cases)
        CHECK_MESSAGE(result.verdict != Verdict::kFailed, result.c.name << ": " << result.message);
    }
  }
}
#endif

#ifdef ANYATTN_PORTABLE_PLUGIN
// The host build of the text that runs on GPUs: every part of the grid, a share of each long one.
TEST_CASE("portable_backends_of_the_host_pass_what_they_must") {
  const struct {
    const char* backend;
    const char* filter;
  } rows[] = {{"PORTABLE_ATTN", "contract/*"},       {"PORTABLE_ATTN", "feature/*"},           {"PORTABLE_ATTN", "bug/3*"},
              {"PORTABLE_ATTN", "meaning/*float32"}, {"PORTABLE_ATTN", "shape/small*"},        {"PORTABLE_MLA", "contract/*"},
              {"PORTABLE_MLA", "feature/mla/*"},     {"PORTABLE_MLA", "mla/decode_lora_256/*"}};
  for (const auto& row : rows) {
    Options options;
    options.backend = row.backend;
    options.name_filter = row.filter;
    const BackendReport report = run(ANYATTN_PORTABLE_PLUGIN, options).backends.at(0);
    CAPTURE(row.backend);
    CAPTURE(row.filter);
    CHECK(report.count(Verdict::kPassed) > 0);
    for (const CaseResult& result : report.cases)
      CHECK_MESSAGE(result.verdict != Verdict::kFailed, result.c.name << ": " << result.message);
  }
}
#endif

TEST_CASE("a_device_without_a_provider_is_named") {
  Options options;
  options.device = "cuda:0";
  try {
    run(std::string(ANYATTN_NAIVE_DIR) + "/naive/anyattn_naive.so", options);
    CHECK(false);
  } catch (const std::exception& error) {
    CHECK(std::string(error.what()).find("no provider for devices of kind 'cuda'") != std::string::npos);
  }
}

TEST_CASE("mutant_window_off_by_one_is_caught") {
  check_mutant("window_off_by_one", "bug/6*", "bug/6_window_left_3/float32", "out[");
}
TEST_CASE("mutant_sink_per_split_is_caught") {
  check_mutant("sink_per_split", "bug/3*", "bug/30_sink_counted_once/bfloat16", "out[");
}
TEST_CASE("mutant_lse_base2_undeclared_is_caught") {
  check_mutant("lse_base2_undeclared", "bug/16*", "bug/16_lse_of_one_key_natural/float32", "1.442695 times the natural ones");
}
TEST_CASE("mutant_tail_of_last_block_is_caught") {
  check_mutant("tail_of_last_block", "*n*", "bug/1_nan_behind_the_last_key/float32", "nan");
}
TEST_CASE("mutant_scale_of_k_for_v_is_caught") {
  check_mutant("scale_of_k_for_v", "feature/*", "feature/kv_scales/float32", "out[");
}
TEST_CASE("mutant_row_scale_of_k_for_v_is_caught") {
  check_mutant("scale_of_k_for_v", "bug/4*", "bug/41_int8_per_token_head/float32", "out[");
}
TEST_CASE("mutant_head_group_is_caught") { check_mutant("head_group", "bug/*", "bug/32_heads_6_over_2/float16", "out["); }

namespace {

// A mutant of the binary that reads its mutation from an option.
Options mutation(const std::string& name) {
  Options options;
  options.plugin_options = {{"mutation", name}};
  return options;
}

void check_chosen_mutant(const std::string& name, const std::string& filter, const std::string& failing,
                         const std::string& words) {
  const BackendReport report = run_naive("mutant", filter, mutation(name));
  const CaseResult& result = result_of(report, failing);
  CHECK_FALSE(report.ok());
  CHECK(result.verdict == Verdict::kFailed);
  CHECK_MESSAGE(contains(result.message, words), result.message);
}

}  // namespace

TEST_CASE("mutant_that_multiplies_by_out_scale_is_caught") {
  check_chosen_mutant("out_scale_upside_down", "feature/*", "feature/out_scale/bfloat16", "out[");
}
TEST_CASE("mutant_that_forgets_q_scale_is_caught") {
  check_chosen_mutant("q_scale_forgotten", "feature/*", "feature/quantised_query/bfloat16", "out[");
}
// Every table of cases misses it: nobody writes 20 for a head size.
TEST_CASE("a_yes_that_is_untrue_off_the_grid_is_found_by_random_problems") {
  const BackendReport tables = run_naive("mutant", "meaning/head*", mutation("wrong_off_the_grid"));
  const BackendReport random = run_naive("mutant", "truth/*", mutation("wrong_off_the_grid"));
  const BackendReport right = run_naive("mutant", "truth/*");

  CHECK(tables.ok());
  CHECK_FALSE(random.ok());
  for (const CaseResult& result : random.cases)
    if (result.verdict == Verdict::kFailed) CHECK_MESSAGE(result.c.head_size % 8 == 4, case_text(result.c));
  CHECK(right.ok());
  CHECK(right.count(Verdict::kPassed) >= 40);
  CHECK(right.count(Verdict::kRefused) >= 10);
}
TEST_CASE("random_problems_are_the_same_for_one_seed_and_others_for_another") {
  const auto texts = [](uint64_t seed) {
    std::string all;
    for (const Case& c : all_cases(Grid::kSmall, seed))
      if (matches("truth/*", c.name)) all += case_text(c) + "\n";
    return all;
  };
  CHECK(texts(1) == texts(1));
  CHECK(texts(1) != texts(2));
}
TEST_CASE("an_allocation_after_warm_up_is_counted_in_every_thread") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("SKIPPED: a sanitizer has a malloc of its own");
#else
  check_chosen_mutant("allocates", "feature/plain*", "feature/plain/float32",
                      "forward allocates on the heap after warm-up: 1 blocks, 96 bytes");
  std::atomic<int> step{0};
  std::thread other([&] {  // made before the watch: a thread's making allocates in its maker
    while (step != 1) std::this_thread::yield();
    void* volatile memory = std::malloc(10);
    std::free(memory);
    step = 2;
  });
  HeapUse use;
  {
    const HeapWatch watch;
    step = 1;
    while (step != 2) std::this_thread::yield();
    use = watch.use();
  }
  other.join();
  CHECK(use.blocks == 1);
  CHECK(use.bytes == 10);
  const BackendReport right = run_naive("mutant", "feature/plain*");
  CHECK(right.ok());
  CHECK(right.hot_calls() > 5);
#endif
}
TEST_CASE("a_call_that_gives_other_bits_again_is_seen") {
  check_chosen_mutant("other_bits_again", "meaning/same_bits_again*", "meaning/same_bits_again/bfloat16", "");
  CHECK(run_naive("mutant", "meaning/same_bits_again*").ok());
}
TEST_CASE("a_byte_behind_out_is_seen") {
  check_chosen_mutant("writes_past_out", "feature/plain*", "feature/plain/float32", "bytes behind out were written");
}
TEST_CASE("a_text_of_the_host_that_is_freed_is_a_crash_with_its_case") {
  check_chosen_mutant("frees_host_text", "feature/plain*", "feature/plain/float32", "the process");
}
TEST_CASE("a_host_that_lends_the_least_finds_what_leans_on_more") {
  check_chosen_mutant("needs_workers", "contract/bare_host", "contract/bare_host", "the process");
  CHECK(run_naive("mutant", "contract/bare_host").ok());
}
TEST_CASE("a_format_that_nobody_can_know_must_be_refused") {
  check_chosen_mutant("takes_unknown_format", "contract/unknown_names", "contract/unknown_names",
                      "format_of_tomorrow, which it cannot know");
}
TEST_CASE("the_base_of_a_log_sum_exp_is_measured") {
  const BackendReport right = run_naive("mutant", "feature/lse/*");
  CHECK(right.lse_over_natural(ANYATTN_LSE_NATURAL) == doctest::Approx(1.0).epsilon(0.01));
  CHECK(right.lse_over_natural(ANYATTN_LSE_BASE2) == doctest::Approx(1.442695).epsilon(0.01));
  CHECK(run_naive("lse_base2_undeclared", "feature/lse/*").lse_over_natural(ANYATTN_LSE_NATURAL) ==
        doctest::Approx(1.442695).epsilon(0.01));
}
TEST_CASE("the_page_for_people_says_what_was_measured") {
  Options options;
  options.backend = "NAIVE_ATTN";
  options.name_filter = "feature/lse/*";
  options.beside = naive("naive");
  std::ostringstream text, json;
  const Report report = run(naive("mutant"), options);
  print_report(report, false, text);
  write_json(report, json);
  for (const char* part :
       {"log-sum-exp, measured over the natural one: natural 1.", "base 2 1.44", "opened before it and behind it: right"})
    CHECK_MESSAGE(contains(text.str(), part), text.str());
  for (const char* part :
       {"\"truth\": {\"taken\"", "\"lse_over_natural\": {\"natural\": 1", "\"beside\": {\"passed\": 12, \"failed\": 0}"})
    CHECK_MESSAGE(contains(json.str(), part), json.str().substr(0, 1000));
}

TEST_CASE("memory_beyond_scratch_is_fenced") {
  check_mutant("writes_past_scratch", "*n*", "feature/plain/float32", "bytes behind scratch were written");
}
TEST_CASE("a_write_of_forward_to_the_cache_is_seen") {
  check_mutant("writes_cache", "*n*", "feature/plain/float32", "forward wrote to the cache");
}
TEST_CASE("a_log_line_on_the_hot_path_is_seen") {
  check_mutant("logs_on_the_hot_path", "*n*", "feature/plain/float32", "logs on the hot path: forward");
}
TEST_CASE("a_refusal_that_impl_create_does_not_share_is_seen") {
  check_mutant("creates_what_it_refuses", "feature/*", "feature/window/float32", "but impl_create takes it");
}

TEST_CASE("a_backend_that_announces_all_fails_by_the_names_of_its_features") {
  const BackendReport report = run_naive("announces_all", "feature/*");

  for (const char* feature :
       {"non_causal", "per_request_causal", "window", "soft_cap", "alibi", "alibi_sqrt", "alibi_symmetric", "sinks",
        "mm_prefix", "sparse_topk", "chunked_local", "cp_decode", "cp_prefill", "kv_scales", "kv_scales_per_head"}) {
    CAPTURE(feature);
    CHECK(std::count(report.wrong_features.begin(), report.wrong_features.end(), feature) == 1);
  }
  for (const std::string feature : {"plain", "lse", "batch_invariant"}) {
    CAPTURE(feature);
    CHECK(std::count(report.wrong_features.begin(), report.wrong_features.end(), feature) == 0);
  }
}

TEST_CASE("a_feature_bit_that_nobody_can_know_must_be_refused") {
  const BackendReport report = run_naive("announces_all", "contract/unknown*");

  CHECK(contains(result_of(report, "contract/unknown_feature").message, "feature bit 63, which it cannot know"));
  CHECK(contains(result_of(report, "contract/unknown_feature_word").message, "feature bit 64, which it cannot know"));
}

TEST_CASE("a_crash_is_a_verdict_and_the_next_case_runs") {
  const BackendReport report = run_naive("crashes", "*/destroy_takes_null");
  Options options;
  options.case_texts = {"paged float32 lens=1/3", "contract float32 check=destroy_takes_null", "paged float32 lens=1/4"};
  options.backend = "NAIVE_ATTN";

  const BackendReport crashed = run(naive("crashes"), options).backends.at(0);

  CHECK(report.ok());
  REQUIRE(crashed.cases.size() == 3);
  CHECK(crashed.cases[0].verdict == Verdict::kFailed);
  CHECK(contains(crashed.cases[0].message, "the process"));
  CHECK(crashed.cases[1].verdict == Verdict::kPassed);
  CHECK(crashed.cases[2].verdict == Verdict::kFailed);
}

TEST_CASE("several_processes_report_as_one_does") {
  Options one, four;
  one.backend = four.backend = "NAIVE_ATTN";
  one.case_texts = four.case_texts = {"paged float32 lens=1/3", "contract float32 check=destroy_takes_null",
                                      "paged float32 lens=1/4", "paged float32 lens=1/5"};
  four.jobs = 4;

  for (const char* plugin : {"naive", "crashes"}) {
    const BackendReport alone = run(naive(plugin), one).backends.at(0);
    const BackendReport together = run(naive(plugin), four).backends.at(0);

    REQUIRE(alone.cases.size() == 4);
    REQUIRE(together.cases.size() == 4);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(together.cases[i].c.name == alone.cases[i].c.name);
      CHECK(together.cases[i].verdict == alone.cases[i].verdict);
      CHECK(together.cases[i].message == alone.cases[i].message);
      CHECK(together.cases[i].ratio_out == alone.cases[i].ratio_out);
    }
  }
}

TEST_CASE("cases_that_the_time_is_over_for_are_named_and_the_report_is_not_ok") {
  Options options;
  options.backend = "NAIVE_ATTN";
  options.case_texts = {"paged float32 lens=1/3", "contract float32 check=destroy_takes_null",
                        "contract float32 check=destroy_takes_null"};
  options.jobs = 2;
  options.timeout_ms = 500;  // the first case hangs that long beside the two others
  const BackendReport in_time = run(naive("hangs"), options).backends.at(0);
  options.jobs = 1;
  options.within_s = 0.1;

  const BackendReport cut = run(naive("hangs"), options).backends.at(0);

  CHECK(in_time.cases.size() == 3);
  CHECK(in_time.count(Verdict::kPassed) == 2);
  CHECK(in_time.not_run.empty());
  REQUIRE(cut.cases.size() == 1);
  CHECK(cut.not_run == std::vector<std::string>{"case_2", "case_3"});
  CHECK_FALSE(cut.ok());
  Options right;
  right.backend = "NAIVE_ATTN";
  right.case_texts = options.case_texts;
  right.within_s = 1e-9;
  const Report none = run(naive("naive"), right);
  CHECK_FALSE(none.ok());
  std::ostringstream text;
  print_report(none, false, text);
  CHECK_MESSAGE(contains(text.str(), "NOT RUN, the time was over: case_1 case_2 case_3"), text.str());
}

TEST_CASE("a_case_that_does_not_end_has_failed") {
  Options options;
  options.case_texts = {"paged float32 lens=1/3", "contract float32 check=destroy_takes_null"};
  options.backend = "NAIVE_ATTN";
  options.timeout_ms = 500;

  const BackendReport report = run(naive("hangs"), options).backends.at(0);

  REQUIRE(report.cases.size() == 2);
  CHECK(contains(report.cases[0].message, "did not end within 500 ms"));
  CHECK(report.cases[1].verdict == Verdict::kPassed);
}

TEST_CASE("a_refusal_of_a_listed_case_fails") {
  const BackendReport report = run_naive("refuses_windows", "feature/*");
  const CaseResult& result = result_of(report, "feature/window/float32");

  CHECK(result.verdict == Verdict::kFailed);
  CHECK(contains(result.message, "the must-pass list has this case, but it is refused: window=on; allowed: off"));
  CHECK_FALSE(report.ok());
}

TEST_CASE("a_must_pass_list_that_names_no_case_has_fallen_behind") {
  Options options;
  options.must_pass = "feature/plain/*\nfeature/teleport/*\n";

  const BackendReport report = run_naive("naive", "feature/plain*", options);

  REQUIRE(report.list_problems.size() == 1);
  CHECK(contains(report.list_problems[0], "'feature/teleport/*' matches no case"));
  CHECK_FALSE(report.ok());
}

TEST_CASE("a_failing_case_fails_again_when_its_text_is_pasted") {
  const BackendReport report = run_naive("window_off_by_one", "random/window_and_sinks/float32");
  REQUIRE(report.cases.at(0).verdict == Verdict::kFailed);
  const std::string text = case_text(report.cases[0].c);
  Options options;
  options.case_texts = {text};
  options.backend = "NAIVE_ATTN";

  CHECK(contains(text, "lens="));
  CHECK_FALSE(contains(text, "random="));
  CHECK(run(naive("window_off_by_one"), options).backends.at(0).cases.at(0).verdict == Verdict::kFailed);
  CHECK(run(naive("naive"), options).backends.at(0).cases.at(0).verdict == Verdict::kPassed);
}

TEST_CASE("results_are_the_same_in_the_own_process_and_in_a_child") {
  Options here;
  here.isolate = false;

  const BackendReport inside = run_naive("naive", "bug/3*", here);
  const BackendReport child = run_naive("naive", "bug/3*");

  REQUIRE(inside.cases.size() == child.cases.size());
  for (size_t i = 0; i < inside.cases.size(); ++i) {
    CHECK(inside.cases[i].c.name == child.cases[i].c.name);
    CHECK(inside.cases[i].verdict == child.cases[i].verdict);
    CHECK(inside.cases[i].ratio_out == child.cases[i].ratio_out);
  }
}

TEST_CASE("a_file_that_is_no_plugin_or_lacks_the_backend_is_an_error_with_its_name") {
  const auto error_of = [](const std::string& file, const std::string& backend) -> std::string {
    Options options;
    options.backend = backend;
    try {
      run(file, options);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(contains(error_of("/nonexistent.so", ""), "/nonexistent.so: no such file"));
  CHECK(contains(error_of(ANYATTN_SOURCE_DIR "/LICENSE", ""), "LICENSE"));
  CHECK(contains(error_of(naive("naive"), "TELEPORT_ATTN"),
                 "no backend 'TELEPORT_ATTN' for the CPU; the file has NAIVE_ATTN, NAIVE_MLA"));
}
