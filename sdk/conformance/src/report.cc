// SPDX-License-Identifier: Apache-2.0
// The report for people and for scripts.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <ostream>

#include "anyattn/conformance/conformance.h"

namespace anyattn::conformance {
namespace {

// A JSON string.
std::string quoted(const std::string& text) {
  static const char* const kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (code < 0x20) {
      result += std::string("\\u00") + kHex[code >> 4] + kHex[code & 15];
    } else {
      result += letter;
    }
  }
  return result + '"';
}

// JSON knows no infinity: null stands for "not finite".
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

template <class Items, class Print>
void list(std::ostream& out, const Items& items, Print&& print) {
  out << '[';
  const char* comma = "";
  for (const auto& item : items) {
    out << comma;
    print(item);
    comma = ", ";
  }
  out << ']';
}

void write_case(std::ostream& out, const CaseResult& result) {
  out << "\n      {\"name\": " << quoted(result.c.name) << ", \"case\": " << quoted(case_text(result.c))
      << ", \"verdict\": " << quoted(verdict_name(result.verdict)) << ", \"error_over_bound\": " << number(result.ratio_out)
      << ", \"lse_error_over_bound\": " << number(result.ratio_lse) << ", \"max_score\": " << number(result.max_score)
      << ", \"ms\": " << number(result.milliseconds) << ", \"message\": " << quoted(result.message) << ", \"reasons\": ";
  list(out, result.reasons, [&](const Reason& reason) {
    out << "{\"id\": " << reason.id << ", \"field\": " << quoted(reason.field) << ", \"wanted\": " << quoted(reason.wanted)
        << ", \"allowed\": " << quoted(reason.allowed) << ", \"hint\": " << quoted(reason.hint) << '}';
  });
  out << '}';
}

// The cases whose names begin alike, by verdict.
struct Share {
  Share(const BackendReport& report, const std::string& prefix) {
    for (const CaseResult& result : report.cases)
      if (result.c.name.compare(0, prefix.size(), prefix) == 0) ++counts[result.verdict];
  }
  size_t of(Verdict verdict) const {
    const auto found = counts.find(verdict);
    return found == counts.end() ? 0 : found->second;
  }
  size_t all() const {
    size_t sum = 0;
    for (const auto& [verdict, count] : counts) sum += count;
    return sum;
  }
  std::map<Verdict, size_t> counts;
};

constexpr const char* kTruth = "truth/";
constexpr const char* kBeside = "beside/";

// What was measured rather than believed, a line each; nothing of what did not run.
void print_measured(const Report& whole, const BackendReport& report, std::ostream& out) {
  if (const Share truth(report, kTruth); truth.all() > 0) {
    out << "  truth of supports: " << truth.all() << " random problems (seed " << whole.truth_seed
        << "): " << truth.of(Verdict::kPassed) << " taken and right, " << truth.of(Verdict::kRefused)
        << " refused by supports and impl_create, " << truth.of(Verdict::kNotOffered) << " not offered, "
        << truth.of(Verdict::kFailed) << " untrue\n";
  }
  const double natural = report.lse_over_natural(ANYATTN_LSE_NATURAL), base2 = report.lse_over_natural(ANYATTN_LSE_BASE2);
  if (natural != 0 || base2 != 0) {
    out << "  log-sum-exp, measured over the natural one:" << std::fixed << std::setprecision(6);
    if (natural != 0) out << " natural " << natural;
    if (base2 != 0) out << (natural != 0 ? "," : "") << " base 2 " << base2 << " (right is 1.442695)";
    out << std::defaultfloat << '\n';
  }
  if (report.hot_calls() > 0)
    out << "  allocations after warm-up: counted in every thread during " << report.hot_calls()
        << " calls; any is a failed case\n";
  if (const Share beside(report, kBeside); beside.all() > 0) {
    out << "  beside " << whole.beside << ", opened before it and behind it: "
        << (beside.of(Verdict::kFailed) > 0   ? "NOT RIGHT"
            : beside.of(Verdict::kPassed) > 0 ? "right"
                                              : "not tried")
        << '\n';
  }
}

void print_backend(const BackendReport& report, bool verbose, std::ostream& out) {
  std::map<std::string, size_t> refusals;
  for (const CaseResult& result : report.cases) {
    if (result.verdict == Verdict::kFailed) {
      out << "FAILED " << result.c.name << ": " << result.message << "\n  --case \"" << case_text(result.c) << "\"\n";
    } else if (verbose) {
      out << verdict_name(result.verdict) << ' ' << result.c.name << ' ' << std::setprecision(3) << result.ratio_out << ' '
          << result.ratio_lse << ' ' << std::llround(result.milliseconds) << " ms " << result.message << '\n';
    }
    if (result.verdict == Verdict::kRefused || result.verdict == Verdict::kNotOffered || result.verdict == Verdict::kSkipped) {
      ++refusals[std::string(verdict_name(result.verdict)) + ": " + result.message];
    }
  }
  for (const auto& [why, count] : refusals) out << "  " << count << " x " << why << '\n';
  if (!report.wrong_features.empty()) {
    out << "announced but wrong:";
    for (const std::string& feature : report.wrong_features) out << ' ' << feature;
    out << '\n';
  }
  for (const std::string& problem : report.list_problems) out << "FAILED " << problem << '\n';
  if (!report.not_run.empty()) {
    out << "NOT RUN, the time was over:";
    for (const std::string& name : report.not_run) out << ' ' << name;
    out << '\n';
  }
  double milliseconds = 0.0;
  for (const CaseResult& result : report.cases) milliseconds += result.milliseconds;
  out << report.backend << ": " << (report.ok() ? "ok" : "NOT OK") << ", " << report.cases.size()
      << " cases: " << report.count(Verdict::kPassed) << " passed, " << report.count(Verdict::kFailed) << " failed, "
      << report.count(Verdict::kRefused) << " refused, " << report.count(Verdict::kNotOffered) << " not offered, "
      << report.count(Verdict::kSkipped) << " skipped; worst error / bound " << std::setprecision(3) << report.worst_ratio()
      << "; " << std::llround(milliseconds) << " ms\n";
}

}  // namespace

void print_report(const Report& report, bool verbose, std::ostream& out) {
  out << report.path << " (" << report.plugin_id << ")\n";
  for (const BackendReport& backend : report.backends) {
    print_backend(backend, verbose, out);
    print_measured(report, backend, out);
  }
}

void write_json(const Report& report, std::ostream& out) {
  out << "{\"path\": " << quoted(report.path) << ", \"plugin\": " << quoted(report.plugin_id)
      << ", \"ok\": " << (report.ok() ? "true" : "false") << ", \"truth_seed\": " << report.truth_seed
      << ", \"beside\": " << quoted(report.beside) << ", \"backends\": ";
  list(out, report.backends, [&](const BackendReport& backend) {
    out << "\n  {\"backend\": " << quoted(backend.backend) << ", \"ok\": " << (backend.ok() ? "true" : "false")
        << ", \"passed\": " << backend.count(Verdict::kPassed) << ", \"failed\": " << backend.count(Verdict::kFailed)
        << ", \"refused\": " << backend.count(Verdict::kRefused) << ", \"not_offered\": " << backend.count(Verdict::kNotOffered)
        << ", \"skipped\": " << backend.count(Verdict::kSkipped)
        << ", \"worst_error_over_bound\": " << number(backend.worst_ratio());
    const Share truth(backend, kTruth), beside(backend, kBeside);
    out << ",\n    \"truth\": {\"taken\": " << truth.of(Verdict::kPassed) << ", \"refused\": " << truth.of(Verdict::kRefused)
        << ", \"not_offered\": " << truth.of(Verdict::kNotOffered) << ", \"untrue\": " << truth.of(Verdict::kFailed)
        << "}, \"lse_over_natural\": {\"natural\": " << number(backend.lse_over_natural(ANYATTN_LSE_NATURAL))
        << ", \"base2\": " << number(backend.lse_over_natural(ANYATTN_LSE_BASE2))
        << "}, \"hot_calls_counted\": " << backend.hot_calls() << ", \"beside\": {\"passed\": " << beside.of(Verdict::kPassed)
        << ", \"failed\": " << beside.of(Verdict::kFailed) << "},\n    \"wrong_features\": ";
    list(out, backend.wrong_features, [&](const std::string& feature) { out << quoted(feature); });
    out << ", \"list_problems\": ";
    list(out, backend.list_problems, [&](const std::string& problem) { out << quoted(problem); });
    out << ", \"not_run\": ";
    list(out, backend.not_run, [&](const std::string& name) { out << quoted(name); });
    out << ",\n    \"cases\": ";
    list(out, backend.cases, [&](const CaseResult& result) { write_case(out, result); });
    out << '}';
  });
  out << "}\n";
}

}  // namespace anyattn::conformance
