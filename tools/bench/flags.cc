// SPDX-License-Identifier: Apache-2.0
#include "bench/flags.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <vector>

#include "vendor_verbs.h"
#include "verbs.h"

namespace anyattn::tools {

std::function<int()> add_bench(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("bench", "What a call costs: the runtime's own part, and the backend against the machine's limits");
  auto options = std::make_shared<BenchOptions>();
  const auto add_words = [verb](const char* flag, std::vector<std::string>& words, std::set<std::string> allowed,
                                const char* type, const char* help) {
    CLI::Option* option = verb->add_option(flag, words, help)->type_name(type)->delimiter(',')->take_all();
    if (!allowed.empty()) option->check(CLI::IsMember(std::move(allowed)).description(""));
  };
  const auto add_numbers = [verb](const char* flag, std::vector<uint32_t>& numbers, uint32_t most, const char* help) {
    verb->add_option(flag, numbers, help)
        ->type_name("N,...")
        ->delimiter(',')
        ->take_all()
        ->check(CLI::Range(1u, most).description(""));
  };
  const auto add_number = [verb](const char* flag, auto& value, uint32_t most, const char* help) {
    verb->add_option(flag, value, help)->type_name("N")->check(CLI::Range(1u, most).description(""))->capture_default_str();
  };
  verb->add_option("--model", options->model, "a model of the table: every kind of its layers")->type_name("ID");
  verb->add_option("--models", options->models_file, "a model table of your own")->type_name("FILE");
  add_words("--heads", options->heads, {}, "Q/KV/SIZE,...", "query heads, kv heads, head size (32/8/128)");
  add_words("--phases", options->phases, {"decode", "prefill", "chunk"}, "decode|prefill|chunk,...",
            "rows a request: one, the whole prompt, or the last 512 of a context, which MLA leaves out (decode,prefill)");
  add_numbers("--contexts", options->contexts, 1u << 24, "keys of decode and chunk rows (512,2048,8192,32768)");
  add_numbers("--prompts", options->prompts, 1u << 20, "keys of prefill rows (512,2048)");
  add_numbers("--batches", options->batches, 1u << 16, "requests (1)");
  add_words("--dtype", options->dtypes, {"float32", "float16", "bfloat16"}, "float32|float16|bfloat16,...",
            "of queries and outputs (bfloat16, or the model's)");
  add_words("--kv-cache-dtype", options->kv_cache_dtypes, {}, "NAME,...", "auto, or formats of a backend (auto: as --dtype)");
  add_words("--caches", options->caches, {"cold", "hot"}, "cold|hot,...",
            "cold: a cache is met again after --cold-mib others; hot: one cache again and again (cold)");
  add_words("--threads", options->threads, {}, "N|all,...", "of the runtime (1,all)");
  add_number("--block-size", options->block_size, 1u << 20, "tokens a cache block; the backend's choice where 0");
  verb->add_flag("--shuffled", options->shuffled, "blocks of a request in any order instead of one behind the other");
  CLI::Option* peers = verb->add_flag(
      "--peers", options->peers, "beside each row its two products by oneDNN and OpenBLAS, where their programs were built");
  CLI::Option* tiles = verb->add_flag("--tiles", options->tiles,
                                      "instead: a backend's other cuts of each problem against its own choice, in turn");
  tiles->excludes(peers);
  verb->add_flag("--wide", options->wide, "rows with all their columns: shares of the products' limits and ns a key")
      ->excludes(tiles);
  verb->add_flag("--batch-invariant", options->batch_invariant, "every row once more with that feature");
  add_number("--pairs", options->pairs, 1001, "samples of the call and of the limits, alternately; the medians are shown");
  add_number("--cold-mib", options->cold_mib, 1u << 20, "MiB between two uses of a cold cache");
  verb->add_option("--min-time", options->min_time_s, "seconds a sample lasts at least")
      ->type_name("S")
      ->check(positive_mistake)
      ->capture_default_str();
  verb->add_option("--html", options->html, "a page with plots, which needs no other file")->type_name("FILE")->excludes(tiles);
  verb->add_option("--compare", options->compare, "two files that --json wrote, before and after; nothing is measured")
      ->type_name("FILE FILE")
      ->expected(2)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--device", options->device, "auto: the first present of cuda, hip, cpu")
      ->type_name("auto|cpu|cuda:N|hip:N")
      ->check(device_mistake);
  verb->add_option("--backend", options->backend, "a must, never replaced; else ANYATTN_BACKEND, else the configuration")
      ->type_name("NAME");
  verb->add_option("--provider", options->provider,
                   "a plugin file with the provider of the device, in place of the configured one")
      ->type_name("FILE");
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn bench\n"
             "  anyattn bench --heads 32/8/128,9/3/64 --contexts 2048,32768 --batches 1,8 --threads 1 --json bench.json\n"
             "  anyattn bench --tiles --device cuda:0 --backend PORTABLE_ATTN --contexts 2048 --batches 1,64\n"
             "  anyattn bench --model Llama-3.2-1B --dtype bfloat16 --kv-cache-dtype auto,float32 --caches cold,hot\n"));
  return [options] { return bench_backend(*options); };
}

}  // namespace anyattn::tools
