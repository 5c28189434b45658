// SPDX-License-Identifier: Apache-2.0
// The anyattn command: flags become option structs, failures become one line and an exit code. Nothing else happens here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "anyattn/runtime.hpp"
#include "bench/flags.h"
#include "common/nearest.h"
#include "common/runtime.h"
#include "common/terminal.h"
#include "problem_flags.h"
#include "serving_verbs.h"
#include "tune/tune.h"
#include "vendor_verbs.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0    done\n"
    "  1    understood, but refused or failed: nothing chosen, a case or a bound that does not hold, a file not written\n"
    "  2    wrong flag, input file or configuration; nothing was tried\n"
    "  130  Ctrl-C; what was done so far is reported\n";

// What --json stores when no file follows it.
constexpr const char* kStandardOutput = "-";

using Verb = std::function<int()>;

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

}  // namespace

std::string footer(const std::string& examples) { return "Examples:\n" + examples + "\n" + kExitCodes; }

std::string device_mistake(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), ordinal = colon == std::string::npos ? "0" : text.substr(colon + 1);
  const bool known = kind == "cpu" || kind == "cuda" || kind == "hip" || text == "auto";
  const bool number = !ordinal.empty() && ordinal.size() < 4 && ordinal.find_first_not_of("0123456789") == std::string::npos;
  if (known && number) return "";
  return text + (kind == "intel" ? ": Intel GPUs are not supported" : "") + ": allowed: auto, cpu, cuda:N, hip:N";
}

std::string positive_mistake(const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc{} && stop == text.data() + text.size() && std::isfinite(value) && value > 0;
  return number ? "" : text + ": allowed: numbers above 0";
}

void add_json(CLI::App& verb, JsonOptions& json) {
  verb.add_option_function<std::string>(
          "--json", [&json](const std::string& file) { json = {true, file == kStandardOutput ? "" : file}; },
          "JSON instead of the table; with FILE beside it, into a file that is new or holds JSON")
      ->type_name("[FILE]");
}

void add_common(CLI::App& verb, CommonOptions& common) {
  verb.add_option("--config", common.config_file, "configuration; else ANYATTN_CONFIG, else the installed default.yaml")
      ->type_name("FILE");
  verb.add_option("--log-level", common.log_level, "of the library's lines on standard error; else ANYATTN_LOG_LEVEL")
      ->type_name("debug|info|warning|error|off")
      ->envname("ANYATTN_LOG_LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}).description(""))
      ->capture_default_str();
  add_json(verb, common.json);
}

void add_target(CLI::App& verb, TargetOptions& target) {
  verb.add_option("--device", target.device, "auto: the first present of cuda, hip, cpu")
      ->type_name("auto|cpu|cuda:N|hip:N")
      ->check(device_mistake);
  verb.add_option("--dtype", target.dtype, "of queries and outputs; with --model its own where not given")
      ->type_name("float32|float16|bfloat16")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}).description(""));
  verb.add_option("--kv-cache-dtype", target.kv_cache_dtype,
                  "auto, float32, float16, bfloat16 or a backend's own; auto: as --dtype")
      ->type_name("NAME");
  verb.add_option("--block-size", target.block_size, "tokens a cache block; the backend's choice where not given")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 20).description(""));
}

void add_backend(CLI::App& verb, TargetOptions& target) {
  verb.add_option("--backend", target.backend, "a must, never replaced; else ANYATTN_BACKEND, else the configuration")
      ->type_name("NAME");
}

namespace {

Verb add_list(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("list", "Every backend with its plugin, and every skipped file with the reason");
  auto options = std::make_shared<CommonOptions>();
  add_common(*verb, *options);
  verb->footer(footer("  anyattn list\n  anyattn list --config my.yaml --json\n"));
  return [options] { return list(*options); };
}

Verb add_config(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("config", "Each value of the configuration and where it came from");
  auto options = std::make_shared<CommonOptions>();
  add_common(*verb, *options);
  verb->footer(footer("  anyattn config\n  ANYATTN_BACKEND=CPU_ATTN anyattn config --json\n"));
  return [options] { return config(*options); };
}

Verb add_doctor(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("doctor", "What this machine offers, and what is in the way of the plugins");
  auto options = std::make_shared<CommonOptions>();
  add_common(*verb, *options);
  verb->footer(footer("  anyattn doctor\n  anyattn doctor --config my.yaml\n"));
  return [options] { return doctor(*options); };
}

Verb add_explain(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("explain", "The problem as understood, and why each backend is chosen or not");
  auto options = std::make_shared<ExplainOptions>();
  verb->add_option("--model", options->model, "a model of the table: every kind of its layers is explained")->type_name("ID");
  verb->add_option("--models", options->models_file, "a model table of your own")->type_name("FILE");
  add_target(*verb, options->target);
  add_backend(*verb, options->target);
  add_common(*verb, options->common);
  for (const ProblemFlag& flag : problem_flags()) {
    const auto add = [options, name = flag.name](const std::string& value) { options->problem.emplace_back(name, value); };
    CLI::Option* option =
        flag.value.empty() ? verb->add_flag_callback(
                                 dashed(flag.name), [add] { add(""); }, flag.help)
                           : verb->add_option_function<std::string>(dashed(flag.name), add, flag.help)->type_name(flag.value);
    option->group("Problem, without --model");
  }
  verb->footer(
      footer("  anyattn explain --model Llama-3.1-8B --device cpu\n"
             "  anyattn explain --head-size 128 --num-q-heads 32 --num-kv-heads 8 --window-left 4095 --sinks\n"
             "  anyattn explain --model DeepSeek-V3 --backend CPU_ATTN --json why.json\n"));
  return [options] { return explain(*options); };
}

Verb add_generate(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "Greedy text of a small Llama whose attention goes through the runtime");
  auto options = std::make_shared<GenerateOptions>();
  verb->add_option("--checkpoint", options->checkpoint, "weights, llama2.c format, version 0")->type_name("FILE")->required();
  verb->add_option("--tokenizer", options->tokenizer, "its pieces, llama2.c format")->type_name("FILE")->required();
  verb->add_option("--tokens", options->num_tokens, "how many")->type_name("N")->check(positive_mistake)->capture_default_str();
  add_target(*verb, options->target);
  add_backend(*verb, options->target);
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn generate --checkpoint stories260K.bin --tokenizer tok512.bin\n"
             "  anyattn generate --checkpoint stories260K.bin --tokenizer tok512.bin --tokens 50 --backend CPU_ATTN --json\n"));
  return [options] { return generate(*options); };
}

Verb add_check(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("check", "Is a backend right? The conformance cases, without the core in between");
  auto options = std::make_shared<CheckOptions>();
  verb->add_option("subject", options->subject, "a plugin file, or the name of a backend that 'list' shows")
      ->type_name("FILE|BACKEND")
      ->required();
  verb->add_option("--case", options->one_case, "one case only, as a failing one prints itself")->type_name("TEXT");
  verb->add_option("--stories", options->stories, "q, k and v of a real model, as stories_reference.py --attention writes them")
      ->type_name("FILE");
  verb->add_option("--seed", options->seed,
                   "of the random problems that test what the backend says it supports; 1 where absent")
      ->type_name("N");
  verb->add_option("--jobs", options->jobs, "cases at work at a time, each in a process of its own; 1 where absent")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--beside", options->beside, "a plugin file to load before and behind the checked one; else one of 'list'")
      ->type_name("FILE");
  verb->add_option("--provider", options->provider,
                   "a plugin file with the provider of the device, in place of the configured one")
      ->type_name("FILE");
  add_target(*verb, options->target);
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn check CPU_ATTN\n"
             "  anyattn check ./anyattn_acme.so --dtype bfloat16 --json report.json\n"
             "  anyattn check CPU_ATTN --case \"paged float32 q=4 kv=2 d=64 lens=1/17,5/40 window=7\"\n"));
  return [options] { return check_backend(*options); };
}

std::vector<std::string> names(const std::vector<CLI::App*>& verbs) {
  std::vector<std::string> found(verbs.size());
  std::transform(verbs.begin(), verbs.end(), found.begin(), [](const CLI::App* verb) { return verb->get_name(); });
  return found;
}

int usage_error(const std::string& who, const std::string& text) {
  fmt::print(stderr, "{}: {}; see '{} --help'\n", who, text, who);
  return kExitUsage;
}

// "--jsn" -> "unknown option '--jsn'; did you mean '--json'?"
std::string describe_extra(const CLI::App& verb, const std::string& extra) {
  if (extra.empty() || extra[0] != '-') return fmt::format("unexpected argument '{}'", extra);
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string word = extra.substr(0, extra.find('=')), close = nearest(word, known);
  return fmt::format("unknown option '{}'{}", word, close.empty() ? "" : fmt::format("; did you mean '{}'?", close));
}

// --json takes a file or nothing. CLI11 cannot tell nothing from the text "true", so nothing is spelt out first.
std::vector<std::string> spelt_out(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool alone = i + 1 == arguments.size() || (arguments[i + 1][0] == '-' && arguments[i + 1] != kStandardOutput);
    if (arguments[i] == "--json" && alone) arguments[i] = fmt::format("--json={}", kStandardOutput);
  }
  return arguments;
}

int dispatch(int argc, char** argv) {
  CLI::App app("AnyAttn: attention backends as plugins. Which are there, why one is chosen, and whether it is right.",
               "anyattn");
  app.require_subcommand(1);
  app.option_defaults()->take_last();  // so that a script's flags can be overruled behind them
  app.set_version_flag("--version", anyattn_version());
  app.footer("'anyattn VERB --help' explains a verb.\n\n" + std::string(kExitCodes));
  const std::vector<Verb> verbs = {add_list(app),   add_explain(app), add_run(app),    add_generate(app),   add_check(app),
                                   add_bench(app),  add_config(app),  add_doctor(app), add_new_plugin(app), add_verdicts(app),
                                   add_bundle(app), add_key(app),     add_lock(app),   add_warm(app),       add_tune(app)};
  const std::vector<CLI::App*> parsers = app.get_subcommands({});
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  const std::vector<std::string> known = names(parsers);
  const std::string first = argv[1];
  if (!first.starts_with('-') && std::find(known.begin(), known.end(), first) == known.end()) {
    const std::string close = nearest(first, known);
    return usage_error("anyattn",
                       fmt::format("no verb '{}'{} (verbs: {})", first,
                                   close.empty() ? "" : fmt::format("; did you mean '{}'?", close), fmt::join(known, ", ")));
  }

  const auto parser = std::find_if(parsers.begin(), parsers.end(), [&](CLI::App* verb) { return verb->get_name() == first; });
  const std::string who = parser == parsers.end() ? "anyattn" : "anyattn " + first;
  try {
    std::vector<std::string> arguments = spelt_out(argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
  } catch (const CLI::ExtrasError&) {
    const CLI::App& asked = parser == parsers.end() ? app : **parser;
    return usage_error(who, describe_extra(asked, asked.remaining(true).front()));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_error(who, error.what());
  }
  try {
    const auto asked = std::find_if(parsers.begin(), parsers.end(), [](const CLI::App* verb) { return verb->parsed(); });
    const int code = verbs.at(static_cast<size_t>(asked - parsers.begin()))();
    if (std::fflush(stdout) != 0) throw Failure(kExitFailed, fmt::format("standard output: {}", std::strerror(errno)));
    return code;
  } catch (const Failure& failure) {
    fmt::print(stderr, "{}: {}\n", who, failure.what());
    return failure.code();
  } catch (const RuntimeError& error) {
    fmt::print(stderr, "{}: {}\n", who, error.what());
    return exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", who, error.what());
    return kExitFailed;
  }
}

}  // namespace
}  // namespace anyattn::tools

int main(int argc, char** argv) { return anyattn::tools::dispatch(argc, argv); }
