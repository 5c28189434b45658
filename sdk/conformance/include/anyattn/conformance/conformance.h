// SPDX-License-Identifier: Apache-2.0
// Runs cases against the backends of a plugin file, with a small host of its own: no core, no configuration.
// Included by `anyattn check`, by anyattn-conformance and by tests.
#ifndef ANYATTN_CONFORMANCE_CONFORMANCE_H
#define ANYATTN_CONFORMANCE_CONFORMANCE_H

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

enum class Verdict {
  kPassed,
  kFailed,      // wrong numbers, a broken rule, a crash, or a refusal of a case that must pass
  kRefused,     // supports says no
  kNotOffered,  // a layout or an LSE base that the backend need not have
  kSkipped,     // data of the case is not there
};
const char* verdict_name(Verdict verdict);

struct Reason {
  uint32_t id = 0;
  std::string field, wanted, allowed, hint;
  std::string text() const;  // one line
};

struct CaseResult {
  Case c;
  Verdict verdict = Verdict::kPassed;
  std::string message;          // why, where not passed
  std::vector<Reason> reasons;  // of a refusal
  double ratio_out = 0;         // worst error over its bound
  double ratio_lse = 0;
  double max_score = 0;         // largest |score| that entered a softmax
  double lse_over_natural = 0;  // measured at the largest |lse|: 1 natural, 1.442695 base 2; 0: no lse was asked for
  double milliseconds = 0;
  uint64_t hot_calls = 0;  // whose allocations were counted, in every thread
};

struct BackendReport {
  std::string backend;
  std::vector<CaseResult> cases;
  std::vector<std::string> wrong_features;  // announced, but the smallest case that needs it fails
  std::vector<std::string> list_problems;   // must-pass patterns that match no case
  std::vector<std::string> not_run;         // cases that Options::within_s left no time for
  double worst_ratio() const;
  // What the backend's log-sum-exps are multiples of where `base` was asked for: 1, or 1.442695 for base 2. The case farthest
  // from that; 0: none asked.
  double lse_over_natural(uint32_t base) const;
  uint64_t hot_calls() const;  // whose allocations were counted
  size_t count(Verdict verdict) const;
  bool ok() const { return count(Verdict::kFailed) == 0 && list_problems.empty() && not_run.empty(); }
};

struct Report {
  std::string path;
  std::string plugin_id;
  uint64_t truth_seed = 1;
  std::string beside;  // the other plugin's file; empty: not tried
  std::vector<BackendReport> backends;
  bool ok() const;
};

struct Options {
  std::string backend;                  // empty: every backend for the device
  std::string device = "cpu";           // or cuda:0, hip:1 ...: memory then comes from a device provider
  std::string provider_file;            // a plugin file with the device's provider; empty: the checked file has it
  std::vector<std::string> case_texts;  // empty: the grid
  std::string name_filter;              // pattern with *; empty: all
  Grid grid = Grid::kSmall;
  uint64_t truth_seed = 1;   // of the random problems truth/*
  std::string beside;        // another plugin file: some cases run again with it opened before and after; empty: not tried
  std::string stories_file;  // dump of the small model's q, k and v; empty: those cases are skipped
  bool isolate = true;       // run in a child process, so that a crash is a verdict
  int timeout_ms = 120000;   // a case that takes longer has failed; read where isolated
  int jobs = 1;              // child processes at work at a time; read where isolated
  double within_s = 0;  // no case of a backend is begun later, and then the report is not ok; 0: no limit; read where isolated
  uint64_t isa_mask = ~uint64_t{0};
  std::vector<std::pair<std::string, std::string>> plugin_options;
  // Patterns of cases that must not be refused, one a line, # comments; empty: the built-in list of the backend's name.
  std::string must_pass;
  std::function<void(const CaseResult&)> progress;  // may be empty
};

// Throws std::runtime_error where the file cannot be tested at all (no plugin, no such backend).
Report run(const std::string& plugin_path, const Options& options);

// The committed list of a backend's name; empty where there is none.
std::string must_pass_list(const std::string& backend);

// '*' stands for any text.
bool matches(const std::string& pattern, const std::string& text);

// For people: failures with their text to paste back, refusals by reason, a line of counts.
void print_report(const Report& report, bool verbose, std::ostream& out);
void write_json(const Report& report, std::ostream& out);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_CONFORMANCE_H
