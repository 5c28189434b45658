// SPDX-License-Identifier: Apache-2.0
// anyattn-conformance: the kit as a program, for plugin authors who have nothing of the core.
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>

#include "anyattn/conformance/conformance.h"

namespace {

using namespace anyattn::conformance;

constexpr const char* kUsage =
    "anyattn-conformance FILE [--backend NAME] [--device KIND:N --provider FILE] [--case \"TEXT\"]... [--only PATTERN] [--grid "
    "small|full] [--json FILE]\n"
    "                    [--seed N] [--beside FILE]\n"
    "                    [--option KEY=VALUE]... [--must-pass FILE] [--stories FILE] [--isa-mask HEX]\n"
    "                    [--jobs N] [--within SECONDS] [--in-process] [--verbose] [--list]\n"
    "Runs the cases of the conformance kit against the backends of a plugin file.\n"
    "  --device     cpu (the default), cuda:0, hip:1 ...: backends for this device, in its memory\n"
    "  --provider   plugin file with the provider of that device; else FILE has it\n"
    "  --only       cases whose name matches the pattern ('*' is any text)\n"
    "  --seed       of the random problems truth/*; 1 where absent\n"
    "  --beside     another plugin: the smallest cases run again with it opened before and behind the checked one\n"
    "  --must-pass  patterns of cases that may not be refused, one a line; else the list built in for the backend's name\n"
    "  --stories    attention dump of the small model; without it those cases are skipped\n"
    "  --jobs       cases at work at a time, each in a process of its own; 1 where absent\n"
    "  --within     no case is begun after so many seconds; those are named, and the exit code is 1\n"
    "  --in-process a crash of the plugin then ends this program; for debuggers\n"
    "  --verbose    a line a case in the report, and as soon as it is done on standard error; else every ten seconds\n"
    "  --list       print names and texts of the cases, run nothing\n"
    "Exit: 0 all well, 1 a case failed, 2 wrong use or a file that cannot be tested.\n"
    "A case is: ";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Command {
  std::string file, json_file;
  Options options;
  bool verbose = false, list = false, help = false;
};

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw UsageError(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::pair<std::string, std::string> key_value(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0) throw UsageError("--option " + text + ": write KEY=VALUE");
  return {text.substr(0, at), text.substr(at + 1)};
}

Grid grid_of(const std::string& text) {
  if (text == "small") return Grid::kSmall;
  if (text == "full") return Grid::kFull;
  throw UsageError("--grid " + text + ": allowed: small, full");
}

uint64_t hex_of(const std::string& text) {
  size_t end = 0;
  const auto value = std::stoull(text, &end, 16);
  if (end != text.size()) throw UsageError("--isa-mask " + text + ": write a hexadecimal number");
  return value;
}

uint64_t number_of(const std::string& word, const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw UsageError(word + " " + text + ": write a number");
  return value;
}

uint64_t count_of(const std::string& word, const std::string& text, uint64_t most) {
  const uint64_t value = number_of(word, text);
  if (value < 1 || value > most) throw UsageError(word + " " + text + ": allowed: 1 to " + std::to_string(most));
  return value;
}

Command read_command(int count, char** words) {
  Command command;
  int at = 1;
  const auto value = [&]() -> std::string {
    if (at + 1 >= count) throw UsageError(std::string(words[at]) + " wants a value");
    return words[++at];
  };
  for (; at < count; ++at) {
    const std::string word = words[at];
    if (word == "--backend")
      command.options.backend = value();
    else if (word == "--device")
      command.options.device = value();
    else if (word == "--provider")
      command.options.provider_file = value();
    else if (word == "--case")
      command.options.case_texts.push_back(value());
    else if (word == "--only")
      command.options.name_filter = value();
    else if (word == "--grid")
      command.options.grid = grid_of(value());
    else if (word == "--json")
      command.json_file = value();
    else if (word == "--option")
      command.options.plugin_options.push_back(key_value(value()));
    else if (word == "--seed")
      command.options.truth_seed = number_of(word, value());
    else if (word == "--beside")
      command.options.beside = value();
    else if (word == "--must-pass")
      command.options.must_pass = content_of(value());
    else if (word == "--stories")
      command.options.stories_file = value();
    else if (word == "--isa-mask")
      command.options.isa_mask = hex_of(value());
    else if (word == "--jobs")
      command.options.jobs = static_cast<int>(count_of(word, value(), 1024));
    else if (word == "--within")
      command.options.within_s = static_cast<double>(count_of(word, value(), 1'000'000));
    else if (word == "--in-process")
      command.options.isolate = false;
    else if (word == "--verbose")
      command.verbose = true;
    else if (word == "--list")
      command.list = true;
    else if (word == "--help" || word == "-h")
      command.help = true;
    else if (word[0] == '-' || !command.file.empty())
      throw UsageError("unknown argument '" + word + "'; --help lists them");
    else
      command.file = word;
  }
  if (command.file.empty() && !command.help && !command.list) throw UsageError("FILE is missing; --help shows the use");
  if (!command.options.isolate && (command.options.jobs > 1 || command.options.within_s > 0)) {
    throw UsageError("--in-process has no other processes: leave out --jobs and --within");
  }
  return command;
}

// What a long grid is at, on standard error: each case as it ends, or the last one every ten seconds.
std::function<void(const CaseResult&)> progress_of(bool each) {
  using Clock = std::chrono::steady_clock;
  return [each, done = size_t{0}, shown = Clock::now()](const CaseResult& result) mutable {
    ++done;
    const auto now = Clock::now();
    if (!each && now - shown < std::chrono::seconds(10)) return;
    shown = now;
    std::cerr << done << ": " << verdict_name(result.verdict) << ' ' << result.c.name << ' '
              << std::llround(result.milliseconds) << " ms" << std::endl;
  };
}

int act(const Command& command) {
  if (command.help) {
    std::cout << kUsage << case_grammar();
    return 0;
  }
  if (command.list) {
    for (const Case& c : all_cases(command.options.grid, command.options.truth_seed))
      std::cout << c.name << "\t" << case_text(c) << '\n';
    return 0;
  }
  Options options = command.options;
  options.progress = progress_of(command.verbose);
  const Report report = run(command.file, options);
  print_report(report, command.verbose, std::cout);
  if (!command.json_file.empty()) {
    std::ofstream out(command.json_file);
    write_json(report, out);
    out.close();
    if (!out) throw UsageError(command.json_file + ": cannot be written");
  }
  return report.ok() ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    return act(read_command(count, words));
  } catch (const std::exception& error) {
    std::cerr << "anyattn-conformance: " << error.what() << '\n';
    return 2;
  }
}
