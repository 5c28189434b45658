// SPDX-License-Identifier: Apache-2.0
// anyattn check: the conformance cases on one plugin file or one backend, without the core in between.
#include <fmt/format.h>

#include <anyattn/conformance/cache_format.h>
#include <anyattn/conformance/conformance.h>
#include <anyattn/verdicts.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/interrupt.h"
#include "common/json_text.h"
#include "common/nearest.h"
#include "common/runtime.h"
#include "common/table.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

namespace kit = anyattn::conformance;
using nlohmann::ordered_json;

bool on_cpu(const TargetOptions& target) { return target.device == "auto" || target.device.starts_with("cpu"); }

std::string kind_of(const TargetOptions& target) {
  return on_cpu(target) ? "cpu" : target.device.substr(0, target.device.find(':'));
}

struct Subject {
  std::string path;
  std::string backend;  // empty: all of the file
};

// A path has a slash or ends in .so; everything else is a backend's name, found as the configuration says.
Subject find_subject(const CheckOptions& options) {
  const bool is_path = options.subject.find('/') != std::string::npos || options.subject.ends_with(".so");
  if (is_path) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(options.subject, error);
    if (error) throw Failure(kExitUsage, fmt::format("{}: {}", options.subject, error.message()));
    return {path.string(), ""};
  }
  const ordered_json listing = parse(open_runtime(options.common, "").list());
  const std::string kind = kind_of(options.target);
  std::vector<std::string> names;
  for (const ordered_json& backend : listing.at("backends")) {
    if (text_of(backend, "device") != kind) continue;
    const std::string name = text_of(backend, "name");
    if (name == options.subject) return {text_of(backend, "path"), name};
    names.push_back(name);
  }
  const std::string close = nearest(options.subject, names);
  throw Failure(kExitUsage, fmt::format("no backend '{}' for {}{}; there {}; a plugin file is named by its path",
                                        options.subject, kind, close.empty() ? "" : fmt::format("; did you mean '{}'?", close),
                                        names.empty() ? "is none ('anyattn list' shows all)"
                                                      : fmt::format("are: {}", fmt::join(names, ", "))));
}

// The file that brings the device: the one named, else the checked one where it has a provider, else the configured one; empty: none.
std::string find_provider(const CheckOptions& options, const Subject& subject) {
  if (!options.provider.empty()) return options.provider;
  const std::string kind = kind_of(options.target);
  const ordered_json listing = parse(open_runtime(options.common, "").list());
  std::string found;
  for (const ordered_json& plugin : listing.at("plugins")) {
    const ordered_json& kinds = plugin.at("providers");
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    const std::string path = text_of(plugin, "path");
    if (path == subject.path) return {};
    if (found.empty()) found = path;
  }
  return found;
}

// A plugin to load beside the checked one; empty: there is none.
std::string find_company(const CheckOptions& options, const Subject& subject) {
  if (!on_cpu(options.target)) return {};
  if (!options.beside.empty()) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(options.beside, error);
    if (error) throw Failure(kExitUsage, fmt::format("--beside {}: {}", options.beside, error.message()));
    return path.string();
  }
  if (!options.one_case.empty()) return {};
  const ordered_json listing = parse(open_runtime(options.common, "").list());
  for (const ordered_json& backend : listing.at("backends"))
    if (text_of(backend, "device") == "cpu" && text_of(backend, "path") != subject.path) return text_of(backend, "path");
  return {};
}

// Its cases store k and v as they come, and another device than the cpu needs its provider.
void require_what_the_kit_has(const CheckOptions& options) {
  const TargetOptions& target = options.target;
  if (on_cpu(target) && !options.provider.empty()) {
    throw Failure(kExitUsage, fmt::format("--provider {}: the cpu needs no device provider", options.provider));
  }
  const std::string& format = target.kv_cache_dtype;
  if (!format.empty() && format != "auto" && !kit::find_cache_format(format)) {
    throw Failure(kExitUsage, fmt::format("--kv-cache-dtype {}: the kit reads and writes: auto, {}, fp8_ds_mla", format,
                                          fmt::join(kit::cache_format_names(false), ", ")));
  }
}

// The grid in another dtype, cache format or block size only; empty: the whole grid as it is.
std::vector<std::string> narrowed_cases(const TargetOptions& target, uint64_t seed) {
  const std::string format = target.kv_cache_dtype == "auto" ? "" : target.kv_cache_dtype;
  if (target.dtype.empty() && target.block_size == 0 && format.empty()) return {};
  std::set<std::string> seen;
  std::vector<std::string> texts;
  for (kit::Case c : kit::all_cases(kit::Grid::kSmall, seed)) {
    const bool paged = c.kind == kit::Kind::kPaged || c.kind == kit::Kind::kMlaDecode || c.kind == kit::Kind::kMlaPrefill;
    if (c.dtype != dtype_of(target.dtype, c.dtype)) continue;
    if (!format.empty()) {
      if (!paged || (!c.format.empty() && c.format != format)) continue;
      c.format = format;
      c.golden.clear();  // figures of float caches
    }
    // A table written out counts blocks of its own size.
    if (target.block_size != 0 && (!paged || !c.table.empty())) continue;
    if (c.cp_world_size > 0 && target.block_size % static_cast<uint32_t>(c.cp_interleave) != 0) continue;
    if (target.block_size != 0) c.block_size = static_cast<int>(target.block_size);
    const std::string text = kit::case_text(c);
    if (seen.insert(text).second) texts.push_back(text);
  }
  return texts;
}

struct Interrupted {};

// Keeps what is done, shows a moving line on a terminal, and is where Ctrl-C is noticed.
class Progress {
 public:
  explicit Progress(bool moving) : moving_(moving) {}
  void operator()(const kit::CaseResult& result) {
    done_.push_back(result);
    if (moving_) fmt::print(stderr, "\r{} cases", done_.size());
    if (interrupted()) throw Interrupted{};
  }
  void end_line() const {
    if (moving_ && !done_.empty()) fmt::print(stderr, "\r\x1b[K");
  }
  // The report of a run that was stopped.
  kit::Report so_far(const Subject& subject) const {
    kit::BackendReport backend;
    backend.backend = subject.backend.empty() ? "stopped early" : subject.backend;
    backend.cases = done_;
    kit::Report report;
    report.path = subject.path;
    report.backends.push_back(std::move(backend));
    return report;
  }

 private:
  bool moving_;
  std::vector<kit::CaseResult> done_;
};

kit::Report run_kit(const Subject& subject, kit::Options asked, bool moving) {
  Progress progress(moving);
  asked.progress = [&](const kit::CaseResult& result) { progress(result); };
  kit::Report report;
  try {
    report = kit::run(subject.path, asked);
  } catch (const Interrupted&) {
    report = progress.so_far(subject);
  }
  progress.end_line();
  return report;
}

// Before the kit opens the file: what reading it and opening it in a child process show. Throws Failure where that is the end.
ordered_json look_at(const CheckOptions& options, const Subject& subject, bool shown) {
  char* text = nullptr;
  const std::string& config = options.common.config_file;
  anyattn::check(anyattn_verdicts_try, config.empty() ? nullptr : config.c_str(), subject.path.c_str(), &text);
  ordered_json look = parse(take_text(text));
  if (const std::string stage = text_of(look, "stage"); !stage.empty()) {
    throw Failure(kExitFailed, fmt::format("{} failed at {}: {}; {}", subject.path, stage, text_of(look, "reason"),
                                           text_of(look, "remedy")));
  }
  if (!shown) return look;
  fmt::print("inspection: {} libraries found, device code: {}\ntrial in a child process: ok\n", look.at("libraries").size(),
             look.at("device_code").empty() ? "none" : text_of(look, "device_code"));
  for (const ordered_json& note : look.at("verdict").at("notes")) fmt::print("  loading it {}\n", printable(text_of(note)));
  return look;
}

void print(const kit::Report& report) {
  std::ostringstream text;
  kit::print_report(report, false, text);
  std::string line;
  for (std::istringstream lines(text.str()); std::getline(lines, line);) fmt::print("{}\n", printable(line));
}

}  // namespace

int check_backend(const CheckOptions& options) {
  const JsonOutput output(options.common.json);
  require_what_the_kit_has(options);
  const Subject subject = find_subject(options);
  kit::Options asked;
  asked.backend = subject.backend;
  if (!on_cpu(options.target)) {
    asked.device = options.target.device;
    asked.provider_file = find_provider(options, subject);
  }
  asked.stories_file = options.stories;
  asked.truth_seed = options.seed;
  asked.jobs = options.jobs;
  asked.beside = find_company(options, subject);
  asked.case_texts = narrowed_cases(options.target, options.seed);
  if (!options.one_case.empty()) {
    try {
      asked.case_texts = {kit::case_text(kit::parse_case(options.one_case))};
    } catch (const kit::CaseError& error) {
      throw Failure(kExitUsage, fmt::format("--case: {}", error.what()));
    }
  }
  const ordered_json look = look_at(options, subject, output.table());
  catch_interrupt();
  const kit::Report report = run_kit(subject, std::move(asked), output.table() && terminal_of(2).interactive);
  if (output.table()) print(report);
  if (output.table() && options.one_case.empty() && report.beside.empty())
    fmt::print("  load order: not tried, there is no other plugin with a cpu backend (--beside FILE)\n");
  std::ostringstream json;
  kit::write_json(report, json);
  ordered_json whole = parse(json.str());
  whole["inspection"] = look;
  output.write(whole);
  if (interrupted()) return kExitInterrupted;
  return report.ok() ? kExitOk : kExitFailed;
}

}  // namespace anyattn::tools
