// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>

#include "bench/flags.h"
#include "tune/tune.h"
#include "vendor_verbs.h"

namespace anyattn::tools {

std::function<int()> add_tune(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("tune", "Measures every backend that can on models' layers, for selection.profile");
  auto options = std::make_shared<TuneOptions>();
  verb->add_option("--model", options->models, "a model of the table; give it several times for several")
      ->type_name("ID")
      ->take_all()
      ->required();
  verb->add_option("--models", options->models_file, "a model table of your own")->type_name("FILE");
  verb->add_option("--out,-o", options->out, "the profile")->type_name("FILE")->required();
  const auto add_numbers = [verb](const char* flag, std::vector<uint32_t>& numbers, uint32_t most, const char* help) {
    verb->add_option(flag, numbers, help)
        ->type_name("N,...")
        ->delimiter(',')
        ->take_all()
        ->check(CLI::Range(1u, most).description(""))
        ->capture_default_str();
  };
  const auto add_number = [verb](const char* flag, auto& value, uint32_t least, uint32_t most, const char* help) {
    verb->add_option(flag, value, help)->type_name("N")->check(CLI::Range(least, most).description(""))->capture_default_str();
  };
  add_numbers("--contexts", options->contexts, 1u << 24, "keys of decode shapes");
  add_numbers("--prompts", options->prompts, 1u << 20, "keys of prefill shapes");
  add_numbers("--batches", options->batches, 1u << 16, "requests");
  add_number("--rounds", options->rounds, 3, 1001, "in each round every backend is sampled once, another one first each time");
  verb->add_option("--min-time", options->min_time_s, "seconds a sample lasts at least")
      ->type_name("S")
      ->check(positive_mistake)
      ->capture_default_str();
  add_number("--cold-mib", options->cold_mib, 1, 1u << 20,
             "MiB between two uses of a decode's cache; each backend has as many");
  add_target(*verb, options->target);
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn tune --model Llama-3.1-8B --device cpu -o profile.json\n"
             "  anyattn tune --model Llama-3.1-8B --model gpt-oss-20b --contexts 1024,16384 --batches 1,32 -o profile.json\n"));
  return [options] { return tune(*options); };
}

}  // namespace anyattn::tools
