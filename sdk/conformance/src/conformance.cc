// SPDX-License-Identifier: Apache-2.0
#include "anyattn/conformance/conformance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <sstream>

#include "failure.h"
#include "must_pass.h"
#include "plugin_file.h"
#include "runner.h"

namespace anyattn::conformance {
namespace {

std::vector<Case> chosen_cases(const Options& options) {
  std::vector<Case> cases;
  for (const std::string& text : options.case_texts) {
    cases.push_back(parse_case(text));
    cases.back().name = "case_" + std::to_string(cases.size());
  }
  if (!cases.empty()) return cases;
  for (Case& c : all_cases(options.grid, options.truth_seed)) {
    if (options.name_filter.empty() || matches(options.name_filter, c.name)) cases.push_back(std::move(c));
  }
  if (cases.empty()) throw std::runtime_error("no case is named like '" + options.name_filter + "'");
  return cases;
}

std::vector<std::string> patterns_of(const std::string& list) {
  std::vector<std::string> patterns;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (!line.empty()) patterns.push_back(line);
  }
  return patterns;
}

// A name is on the list if a pattern matches it and none of those that start with '!' does.
bool listed(const std::vector<std::string>& patterns, const std::string& name) {
  bool found = false;
  for (const std::string& pattern : patterns) {
    if (pattern[0] == '!' && matches(pattern.substr(1), name)) return false;
    found = found || matches(pattern, name);
  }
  return found;
}

// Patterns that match no case of any grid: a list that has fallen behind.
std::vector<std::string> idle_patterns(const std::vector<std::string>& patterns) {
  const std::vector<Case> cases = all_cases(Grid::kFull);
  std::vector<std::string> idle;
  for (const std::string& pattern : patterns) {
    const std::string positive = pattern.substr(pattern[0] == '!' ? 1 : 0);
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return matches(positive, c.name); })) {
      idle.push_back("must-pass pattern '" + pattern + "' matches no case");
    }
  }
  return idle;
}

// "feature/window/..." names the feature it is the smallest case of.
std::string feature_of(const std::string& name) {
  constexpr std::string_view kPrefix = "feature/";
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return {};
  return name.substr(kPrefix.size(), name.find('/', kPrefix.size()) - kPrefix.size());
}

void judge(const std::vector<std::string>& must_pass, const Subject& subject, CaseResult* result) {
  if (result->verdict != Verdict::kRefused && result->verdict != Verdict::kNotOffered) return;
  const bool of_graphs = result->c.mode == ANYATTN_METADATA_GRAPH_CAPTURE;
  if (result->verdict == Verdict::kNotOffered && of_graphs && !captures_graphs(subject)) return;
  if (!listed(must_pass, result->c.name)) return;
  result->message =
      "the must-pass list has this case, but it is " + std::string(verdict_name(result->verdict)) + ": " + result->message;
  result->verdict = Verdict::kFailed;
}

BackendReport run_backend(const Subject& subject, const std::vector<Case>& cases, const Options& options) {
  BackendReport report;
  report.backend = subject.backend.name;
  const auto must_pass = patterns_of(options.must_pass.empty() ? must_pass_list(report.backend) : options.must_pass);
  report.list_problems = idle_patterns(must_pass);
  std::vector<std::optional<CaseResult>> results(cases.size());
  std::map<size_t, std::string> wrong;  // features of failed cases; a refusal that may not be is another fault
  const auto done = [&](size_t index, CaseResult result) {
    if (const std::string feature = feature_of(result.c.name); !feature.empty() && result.verdict == Verdict::kFailed) {
      wrong[index] = feature;
    }
    judge(must_pass, subject, &result);
    if (options.progress) options.progress(result);
    results[index] = std::move(result);
  };
  if (options.isolate) {
    run_isolated(subject, cases, {options.timeout_ms, options.jobs, options.within_s}, done);
  } else {
    for (size_t i = 0; i < cases.size(); ++i) done(i, run_case(subject, cases[i]));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    if (results[i])
      report.cases.push_back(std::move(*results[i]));
    else
      report.not_run.push_back(cases[i].name);
  }
  for (const auto& [index, feature] : wrong) {
    auto& features = report.wrong_features;
    if (std::find(features.begin(), features.end(), feature) == features.end()) features.push_back(feature);
  }
  return report;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "passed";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kRefused:
      return "refused";
    case Verdict::kNotOffered:
      return "not offered";
    case Verdict::kSkipped:
      return "skipped";
  }
  return "unknown";
}

std::string Reason::text() const {
  std::string line = field + "=" + wanted + "; allowed: " + allowed;
  if (!hint.empty()) line += " (" + hint + ")";
  return line;
}

double BackendReport::worst_ratio() const {
  double worst = 0.0;
  for (const CaseResult& result : cases) {
    if (result.verdict == Verdict::kPassed) worst = std::max({worst, result.ratio_out, result.ratio_lse});
  }
  return worst;
}

double BackendReport::lse_over_natural(uint32_t base) const {
  const double expected = base == ANYATTN_LSE_BASE2 ? std::numbers::log2e : 1.0;
  double farthest = 0.0;
  for (const CaseResult& result : cases) {
    const double measured = result.lse_over_natural;
    if (result.c.lse_base != base || measured == 0.0) continue;
    if (farthest == 0.0 || std::fabs(measured - expected) > std::fabs(farthest - expected)) farthest = measured;
  }
  return farthest;
}

uint64_t BackendReport::hot_calls() const {
  return std::accumulate(cases.begin(), cases.end(), uint64_t{0},
                         [](uint64_t sum, const CaseResult& result) { return sum + result.hot_calls; });
}

size_t BackendReport::count(Verdict verdict) const {
  return static_cast<size_t>(
      std::count_if(cases.begin(), cases.end(), [&](const CaseResult& r) { return r.verdict == verdict; }));
}

bool Report::ok() const {
  return std::all_of(backends.begin(), backends.end(), [](const BackendReport& report) { return report.ok(); });
}

bool matches(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string must_pass_list(const std::string& backend) {
  for (const MustPass& list : kMustPass) {
    if (backend == list.backend) return list.text;
  }
  return {};
}

Report run(const std::string& plugin_path, const Options& options) {
  const std::vector<Case> cases = chosen_cases(options);
  // In children, while this process has opened nothing yet.
  const std::vector<CaseResult> beside =
      options.beside.empty() || options.device != "cpu" ? std::vector<CaseResult>{} : run_beside(plugin_path, options);
  Host host(options.plugin_options, options.isa_mask);
  const PluginFile file = open_plugin(plugin_path, host);
  Report report;
  std::unique_ptr<Device> device;
  if (options.device != "cpu") {
    device = std::make_unique<Device>(options.provider_file.empty() ? file.path : options.provider_file, options.device,
                                      host.table());
    device->probe();
  }
  report.path = file.path;
  report.truth_seed = options.truth_seed;
  if (!beside.empty()) report.beside = options.beside;
  report.plugin_id = file.plugin.id ? file.plugin.id : "";
  std::string names;
  for (const anyattn_backend& backend : file.backends) {
    names += std::string(names.empty() ? "" : ", ") + backend.name;
    if (backend.device_kind != (device ? device->kind() : ANYATTN_DEVICE_CPU)) continue;
    if (!options.backend.empty() && options.backend != backend.name) continue;
    const Subject subject{&host, backend, cpu_device_facts(), options.stories_file, device.get()};
    report.backends.push_back(run_backend(subject, cases, options));
    for (const CaseResult& result : beside) {
      const std::string& name = result.c.name;
      if (name.ends_with('/') || name.find("/" + report.backends.back().backend + "/") != std::string::npos)
        report.backends.back().cases.push_back(result);
    }
  }
  if (report.backends.empty()) {
    throw std::runtime_error(file.path + ": no backend " + (options.backend.empty() ? "" : "'" + options.backend + "' ") +
                             "for " + (options.device == "cpu" ? "the CPU" : options.device) + "; the file has " +
                             (names.empty() ? "none" : names));
  }
  return report;
}

}  // namespace anyattn::conformance
