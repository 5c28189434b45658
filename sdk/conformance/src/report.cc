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
  for (const BackendReport& backend : report.backends) print_backend(backend, verbose, out);
}

void write_json(const Report& report, std::ostream& out) {
  out << "{\"path\": " << quoted(report.path) << ", \"plugin\": " << quoted(report.plugin_id)
      << ", \"ok\": " << (report.ok() ? "true" : "false") << ", \"backends\": ";
  list(out, report.backends, [&](const BackendReport& backend) {
    out << "\n  {\"backend\": " << quoted(backend.backend) << ", \"ok\": " << (backend.ok() ? "true" : "false")
        << ", \"passed\": " << backend.count(Verdict::kPassed) << ", \"failed\": " << backend.count(Verdict::kFailed)
        << ", \"refused\": " << backend.count(Verdict::kRefused) << ", \"not_offered\": " << backend.count(Verdict::kNotOffered)
        << ", \"skipped\": " << backend.count(Verdict::kSkipped)
        << ", \"worst_error_over_bound\": " << number(backend.worst_ratio()) << ",\n    \"wrong_features\": ";
    list(out, backend.wrong_features, [&](const std::string& feature) { out << quoted(feature); });
    out << ", \"list_problems\": ";
    list(out, backend.list_problems, [&](const std::string& problem) { out << quoted(problem); });
    out << ",\n    \"cases\": ";
    list(out, backend.cases, [&](const CaseResult& result) { write_case(out, result); });
    out << '}';
  });
  out << "}\n";
}

}  // namespace anyattn::conformance
