// SPDX-License-Identifier: Apache-2.0
#include "bench/compare.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "bench/report.h"
#include "common/failure.h"
#include "common/table.h"

namespace anyattn::tools::bench {
namespace {

using nlohmann::ordered_json;

constexpr double kNoticed = 0.05;  // coloured from here on; the medians of two runs differ by about that

std::map<std::string, const ordered_json*> by_name(const ordered_json& answer) {
  std::map<std::string, const ordered_json*> rows;
  for (const ordered_json& row : answer["rows"]) rows.emplace(name_of(row), &row);
  return rows;
}

// Of the limit that bounds the row; null where none was measured.
ordered_json main_share(const ordered_json& row) {
  for (const char* limit : {"dram_read", "cached_read", "bf16_dot", "f32_fma"}) {
    const auto found = row["shares"].find(limit);
    if (found != row["shares"].end()) return (*found)["share"];
  }
  return nullptr;
}

std::string percent(const ordered_json& share) {
  return share.is_null() ? "" : fmt::format("{:.0f} %", 100 * share.get<double>());
}

}  // namespace

ordered_json read_answer(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Failure(kExitUsage, fmt::format("--compare {}: {}", file, std::strerror(errno)));
  ordered_json answer = ordered_json::parse(in, nullptr, false);
  const bool ours = answer.is_object() && answer.contains("rows") && answer["rows"].is_array() && answer.contains("limits");
  if (!ours) throw Failure(kExitUsage, fmt::format("--compare {}: no file that 'anyattn bench --json FILE' wrote", file));
  return answer;
}

ordered_json compare(const ordered_json& before, const ordered_json& after) {
  ordered_json result{
      {"rows", ordered_json::array()}, {"only_before", ordered_json::array()}, {"only_after", ordered_json::array()}};
  const auto old_rows = by_name(before), new_rows = by_name(after);
  for (const ordered_json& row : before["rows"]) {
    const std::string name = name_of(row);
    const auto found = new_rows.find(name);
    if (found == new_rows.end()) {
      result["only_before"].push_back(name);
      continue;
    }
    const ordered_json& now = *found->second;
    result["rows"].push_back({{"name", name},
                              {"before_us", row["forward_us"]},
                              {"after_us", now["forward_us"]},
                              {"time", now["forward_us"].get<double>() / row["forward_us"].get<double>()},
                              {"before_share", main_share(row)},
                              {"after_share", main_share(now)}});
  }
  for (const ordered_json& row : after["rows"]) {
    if (!old_rows.contains(name_of(row))) result["only_after"].push_back(name_of(row));
  }
  return result;
}

std::string comparison_text(const ordered_json& comparison, const Terminal& terminal) {
  Table table({{"row"},
               {"before, us", Align::kRight},
               {"after, us", Align::kRight},
               {"time", Align::kRight},
               {"share before", Align::kRight},
               {"after", Align::kRight}});
  for (const ordered_json& row : comparison["rows"]) {
    const double time = row["time"].get<double>();
    const Colour colour = time > 1 + kNoticed ? Colour::kRed : time < 1 - kNoticed ? Colour::kGreen : Colour::kPlain;
    table.add({row["name"].get<std::string>(),
               fmt::format("{:.1f}", row["before_us"].get<double>()),
               fmt::format("{:.1f}", row["after_us"].get<double>()),
               {fmt::format("x {:.2f}", time), colour},
               percent(row["before_share"]),
               percent(row["after_share"])});
  }
  std::string text = table.render(terminal);
  for (const char* key : {"only_before", "only_after"}) {
    for (const ordered_json& name : comparison[key])
      text +=
          fmt::format("{}: {}\n", key == std::string("only_before") ? "only before" : "only after", name.get<std::string>());
  }
  return text;
}

}  // namespace anyattn::tools::bench
