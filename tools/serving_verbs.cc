// SPDX-License-Identifier: Apache-2.0
#include "serving_verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/flags.h"
#include "run.h"
#include "vendor_verbs.h"
#include "warm.h"

namespace anyattn::tools {

std::function<int()> add_run(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("run", "A serving trace replayed with continuous batching, rows of it recomputed");
  auto options = std::make_shared<RunOptions>();
  verb->add_option("--model", options->model, "a model of the table; its attention layers are run")
      ->type_name("ID")
      ->required();
  verb->add_option("--models", options->models_file, "a model table of your own")->type_name("FILE");
  verb->add_option("--trace", options->trace, "requests: a file, or builtin:chat, builtin:code")
      ->type_name("FILE|builtin:NAME")
      ->required();
  verb->add_option("--format", options->format, "of the file; told by its first line where not given")
      ->type_name("azure|mooncake")
      ->check(CLI::IsMember({"azure", "mooncake"}).description(""));
  const auto add_number = [verb](const char* flag, auto& value, uint32_t most, const char* help) {
    return verb->add_option(flag, value, help)->type_name("N")->check(CLI::Range(1u, most).description(""));
  };
  add_number("--requests", options->requests, 100'000'000, "the first N; all of a file, 100 built-in ones where not given");
  add_number("--max-prompt", options->max_prompt, 1u << 24, "skip requests with a longer prompt");
  add_number("--layers", options->layers, 4096, "of each kind; all the model has where not given");
  add_number("--token-budget", options->token_budget, 1u << 20, "tokens a step, decode and prefill together")
      ->capture_default_str();
  add_number("--max-reqs", options->max_num_reqs, 1u << 16, "requests running at once")->capture_default_str();
  add_number(
      "--blocks", options->blocks, 1u << 31,
      "KV budget in blocks of the largest layer kind; what the requests need, at most a quarter of memory, where not given");
  verb->add_option("--seed", options->seed, "of everything drawn")->type_name("N")->capture_default_str();
  verb->add_flag("--saturate", options->saturate, "all requests are there at once");
  verb->add_option("--graphs", options->graphs,
                   "auto: steps of few rows replay captured graphs where device and backend have them")
      ->type_name("auto|off")
      ->check(CLI::IsMember({"auto", "off"}).description(""))
      ->capture_default_str();
  add_target(*verb, options->target);
  add_backend(*verb, options->target);
  add_common(*verb, options->common);
  verb->footer(footer(
      "  anyattn run --model Llama-3.1-8B --trace builtin:chat --requests 20 --layers 1\n"
      "  anyattn run --model DeepSeek-V3 --trace azure_llm_2023_conv.csv --max-prompt 2048 --layers 1 --json run.json\n"));
  return [options] { return run(*options); };
}

std::function<int()> add_warm(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("warm", "Compiles and loads whatever a model's layers need, so that kernel caches hold it");
  auto options = std::make_shared<WarmOptions>();
  verb->add_option("--model", options->models, "models of the table; every kind of their layers is made ready")
      ->type_name("ID,...")
      ->delimiter(',')
      ->required();
  verb->add_option("--models", options->models_file, "a model table of your own")->type_name("FILE");
  verb->add_option("--arch", options->architecture,
                   "of an NVIDIA device that is not here: backends that compile at run time fill the cache for it, with no "
                   "driver; AMD's and other architectures (sm_87, sm_103): where the device is")
      ->type_name("sm_80|sm_86|sm_89|sm_90|sm_100|sm_120")
      ->check(CLI::IsMember({"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}).description(""));
  add_target(*verb, options->target);
  add_backend(*verb, options->target);
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn warm --model Llama-3.1-8B,DeepSeek-V3 --device cuda:0\n"
             "  anyattn warm --model Llama-3.1-8B --arch sm_90 --config with_cache_folder.yaml\n"
             "  anyattn warm --model Llama-3.1-8B --device cuda:0 --config with_cache_folder.yaml --json\n\n"
             "Where compiled code is kept is an option of the plugin that compiles, as in\n"
             "  plugins: {entries: [{id: org.anyattn.portable.cuda, options: {cache: /srv/kernels}}]}\n"
             "A copy of that folder serves the same devices without a compiler.\n"));
  return [options] { return warm(*options); };
}

}  // namespace anyattn::tools
