// SPDX-License-Identifier: Apache-2.0
#include "serving/trace.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "common/failure.h"
#include "serving/builtin_trace.h"

namespace anyattn::tools {
namespace {

constexpr uintmax_t kLargestFile = uintmax_t{1} << 30;
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::string_view kBuiltin = "builtin:";

// The whole text as a number in [low, high], or nothing.
template <class Number>
std::optional<Number> number(std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || text.empty() || value < low || value > high)
    return std::nullopt;
  return value;
}

// "2023-11-16 18:15:46.6805900" as seconds since 1970, to the nanosecond.
std::optional<int64_t> nanoseconds(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':')
    return std::nullopt;
  const auto year = number<int>(text.substr(0, 4), 1970, 2199);
  const auto month = number<unsigned>(text.substr(5, 2), 1, 12);
  const auto day = number<unsigned>(text.substr(8, 2), 1, 31);
  const auto hour = number<int>(text.substr(11, 2), 0, 23);
  const auto minute = number<int>(text.substr(14, 2), 0, 59);
  const auto second = number<int>(text.substr(17, 2), 0, 59);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  int64_t fraction = 0;
  if (text.size() > 19) {
    const std::string_view digits = text.substr(20);
    const auto value = number<int64_t>(digits, 0, 999'999'999);
    if (text[19] != '.' || digits.size() > 9 || !value) return std::nullopt;
    fraction = *value;
    for (size_t i = digits.size(); i < 9; ++i) fraction *= 10;
  }
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return (((days * 24 + *hour) * 60 + *minute) * 60 + *second) * 1'000'000'000 + fraction;
}

// Takes the next line off `text`, without its end (LF or CR LF).
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

// A line as an error shows it: short and printable.
std::string shown(std::string_view line) {
  std::string text(line.substr(0, 60));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return line.size() > 60 ? text + "..." : text;
}

std::string read_file(const std::string& path) {
  std::error_code code;
  const bool regular = std::filesystem::is_regular_file(path, code);
  if (!regular) throw Failure(kExitUsage, fmt::format("--trace {}: {}", path, code ? code.message() : "not a regular file"));
  const uintmax_t size = std::filesystem::file_size(path, code);
  if (code || size > kLargestFile) {
    throw Failure(kExitUsage, fmt::format("--trace {}: {}", path,
                                          code ? code.message() : "larger than 1 GiB, which is the most that is read"));
  }
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(size))) {
    throw Failure(kExitUsage, fmt::format("--trace {}: cannot be read: {}", path, std::strerror(errno)));
  }
  return text;
}

}  // namespace

Trace parse_azure(std::string_view text, const std::string& name) {
  if (const std::string_view header = next_line(text); header != kAzureHeader) {
    throw Failure(kExitUsage, fmt::format("{}:1: the header is '{}'; wanted: {}", name, shown(header), kAzureHeader));
  }
  Trace trace{name, {}};
  int64_t first = 0, last = 0;
  for (size_t line_number = 2; !text.empty(); ++line_number) {
    const std::string_view line = next_line(text);
    const size_t comma = line.find(',');
    const size_t second = comma == std::string_view::npos ? comma : line.find(',', comma + 1);
    std::optional<int64_t> stamp;
    std::optional<uint32_t> prompt, output;
    if (second != std::string_view::npos) {
      stamp = nanoseconds(line.substr(0, comma));
      prompt = number<uint32_t>(line.substr(comma + 1, second - comma - 1), 1, kMaxRequestTokens);
      output = number<uint32_t>(line.substr(second + 1), 1, kMaxRequestTokens);
    }
    if (!stamp || !prompt || !output) {
      throw Failure(kExitUsage,
                    fmt::format("{}:{}: '{}'; wanted: YYYY-MM-DD hh:mm:ss[.fraction],prompt tokens,generated tokens, "
                                "both 1 to {}",
                                name, line_number, shown(line), kMaxRequestTokens));
    }
    if (trace.requests.empty()) first = last = *stamp;
    if (*stamp < last) {
      throw Failure(kExitUsage,
                    fmt::format("{}:{}: the stamp lies before that of the line above; requests stand in order of arrival", name,
                                line_number));
    }
    last = *stamp;
    trace.requests.push_back({static_cast<double>(*stamp - first) * 1e-9, *prompt, *output, {}});
  }
  if (trace.requests.empty()) throw Failure(kExitUsage, fmt::format("{}: no request after the header", name));
  return trace;
}

Trace load_trace(const std::string& where, const std::string& format, uint64_t seed, uint32_t builtin_requests) {
  if (where.starts_with(kBuiltin)) {
    if (!format.empty())
      throw Failure(kExitUsage, fmt::format("--format {}: a built-in trace has no file format; leave it out", format));
    return builtin_trace(where.substr(kBuiltin.size()), seed, builtin_requests);
  }
  if (!format.empty() && format != "azure" && format != "mooncake") {
    throw Failure(kExitUsage, fmt::format("--format {}: allowed: azure, mooncake", format));
  }
  const std::string text = read_file(where);
  const std::string_view start = std::string_view(text).substr(0, kAzureHeader.size());
  if (format == "azure" || (format.empty() && start == kAzureHeader)) return parse_azure(text, where);
  if (format == "mooncake" || (format.empty() && start.starts_with('{'))) return parse_mooncake(text, where);
  throw Failure(kExitUsage,
                fmt::format("{}:1: '{}' begins neither an azure trace ({}) nor a mooncake trace (a JSON object a line)", where,
                            shown(std::string_view(text).substr(0, text.find('\n'))), kAzureHeader));
}

}  // namespace anyattn::tools
