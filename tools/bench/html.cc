// SPDX-License-Identifier: Apache-2.0
#include "bench/html.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "bench/plot.h"
#include "common/failure.h"

namespace anyattn::tools::bench {
namespace {

using nlohmann::ordered_json;
using ValueOf = std::function<std::optional<double>(const ordered_json& row)>;

constexpr const char* kStart = "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>anyattn bench</title>";
constexpr const char* kStyle = R"(<style>
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #d8dde6; --page: #ffffff;
  --c0: #1f6feb; --c1: #d9480f; --c2: #2b8a3e; --c3: #9c36b5; --c4: #0b7285; --c5: #c2255c; --c6: #7c5e10; --c7: #495057; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b5; --line: #353c49; --page: #14181f;
  --c0: #6ea8fe; --c1: #ff922b; --c2: #69db7c; --c3: #da77f2; --c4: #3bc9db; --c5: #f783ac; --c6: #d8b94a; --c7: #adb5bd; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 28px auto; max-width: 1180px; padding: 0 16px; color: var(--ink);
  background: var(--page); }
h1 { font-size: 22px; margin: 0 0 4px } h2 { font-size: 16px; margin: 28px 0 8px } p { margin: 2px 0; color: var(--soft) }
.plots { display: flex; flex-wrap: wrap; gap: 20px }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: 3px 10px 3px 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--soft); font-weight: 500 } .left { text-align: left }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft) } svg .title { font-weight: 600; fill: var(--ink) }
.end { text-anchor: end } .mid { text-anchor: middle }
.grid { stroke: var(--line) } .axis { stroke: var(--soft) }
svg path { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 5 4 }
)";

std::string text(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string colours() {
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += fmt::format("path.s{0} {{ stroke: var(--c{0}) }} circle.s{0} {{ fill: var(--c{0}) }}\n", i);
  return out;
}

// What a series is called: only what is not the same in all rows, and the place of the cache in words.
std::string label_of(const ordered_json& row, const std::set<std::string>& unlike) {
  std::string label;
  const auto add = [&](const std::string& word) { label += (label.empty() ? "" : ", ") + word; };
  if (unlike.contains("heads")) add(text(row["heads"]));
  if (unlike.contains("dtype")) add(text(row["dtype"]));
  if (unlike.contains("kv_cache_dtype") && row["kv_cache_dtype"] != row["dtype"]) add(text(row["kv_cache_dtype"]) + " cache");
  if (unlike.contains("num_reqs")) add(fmt::format("{} requests", text(row["num_reqs"])));
  if (unlike.contains("cold")) add(row["cold"].get<bool>() ? "cold" : "hot");
  if (unlike.contains("batch_invariant")) add(row["batch_invariant"].get<bool>() ? "batch invariant" : "any batch");
  if (row["threads"] == 0) return label.empty() ? text(row["backend"]) : label;  // on a device of its own
  add(row["threads"] == 1 ? "1 thread" : fmt::format("{} threads", text(row["threads"])));
  return label;
}

std::set<std::string> unlike_keys(const ordered_json& rows, const std::string& phase) {
  std::set<std::string> unlike;
  const ordered_json* first = nullptr;
  for (const ordered_json& row : rows) {
    if (row["phase"] != phase) continue;
    if (!first) first = &row;
    for (const char* key : {"heads", "dtype", "kv_cache_dtype", "num_reqs", "cold", "batch_invariant"}) {
      if (row[key] != (*first)[key]) unlike.insert(key);
    }
  }
  return unlike;
}

// Rows of one phase over their keys; nothing where no row has the value.
std::string plot_of(const ordered_json& rows, const std::string& phase, Plot plot, const ValueOf& value_of) {
  const std::set<std::string> unlike = unlike_keys(rows, phase);
  std::map<std::string, size_t> index;
  for (const ordered_json& row : rows) {
    const std::optional<double> value = row["phase"] == phase ? value_of(row) : std::nullopt;
    if (!value || *value <= 0) continue;
    const std::string label = label_of(row, unlike);
    const auto [found, added] = index.emplace(label, plot.series.size());
    if (added) plot.series.push_back({label, {}});
    plot.series[found->second].points.emplace_back(row["seq_len"].get<double>(), *value);
  }
  return plot.series.empty() ? "" : svg_of(plot);
}

ValueOf share_of(std::vector<std::string> limits) {
  return [limits = std::move(limits)](const ordered_json& row) -> std::optional<double> {
    for (const std::string& limit : limits) {
      const auto found = row["shares"].find(limit);
      if (found != row["shares"].end()) return (*found)["share"].get<double>();
    }
    return std::nullopt;
  };
}

std::string plots(const ordered_json& rows) {
  std::string out;
  const ValueOf time = [](const ordered_json& row) { return std::optional(row["forward_us"].get<double>()); };
  for (const char* phase : {"decode", "chunk", "prefill"}) {
    const bool reads = phase != std::string("prefill");
    const std::string name = phase;
    out += plot_of(rows, phase, {name + ": time of a call", "keys of a request", "microseconds", Scale::kLog, {}}, time);
    if (reads)
      out += plot_of(rows, phase,
                     {name + ": share of the read rate", "keys of a request", "100 % = the limit", Scale::kPercent, {}},
                     share_of({"dram_read", "cached_read", "device_copy"}));
    if (phase == std::string("decode")) continue;
    out += plot_of(rows, phase,
                   {name + ": share of the arithmetic peak (bf16 dot, else f32)",
                    "keys of a request",
                    "100 % = the limit",
                    Scale::kPercent,
                    {}},
                   share_of({"bf16_dot", "f32_fma"}));
  }
  return "<div class='plots'>" + out + "</div>";
}

std::string table(const std::vector<std::string>& titles, const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::string out = "<table><tr>";
  const auto cell = [&](const char* kind, size_t i, const std::string& content) {
    out += fmt::format("<{0}{1}>{2}</{0}>", kind, i < left ? " class='left'" : "", escaped(content));
  };
  for (size_t i = 0; i < titles.size(); ++i) cell("th", i, titles[i]);
  for (const auto& row : rows) {
    out += "</tr><tr>";
    for (size_t i = 0; i < row.size(); ++i) cell("td", i, row[i]);
  }
  return out + "</tr></table>\n";
}

std::string percent(const std::optional<double>& share) { return share ? fmt::format("{:.0f} %", 100 * *share) : ""; }

std::string rows_table(const ordered_json& rows) {
  std::vector<std::vector<std::string>> cells;
  for (const ordered_json& row : rows) {
    const auto number = [&](const char* key, int digits) { return fmt::format("{:.{}f}", row[key].get<double>(), digits); };
    const std::string place = row["query_len"] < row["seq_len"] ? (row["cold"].get<bool>() ? ", cold" : ", hot") : "";
    cells.push_back({text(row["heads"]), text(row["dtype"]), text(row["kv_cache_dtype"]), text(row["phase"]) + place,
                     text(row["backend"]), text(row["num_reqs"]), text(row["seq_len"]), text(row["threads"]),
                     number("forward_us", 1), number("gb_per_s", 2),
                     percent(share_of({"dram_read", "cached_read", "device_copy"})(row)), number("gflop_per_s", 1),
                     percent(share_of({"f32_fma"})(row)), percent(share_of({"bf16_dot"})(row)),
                     percent(share_of({"bf16_amx"})(row)), percent(row["others"].get<double>())});
  }
  return table({"heads", "q", "cache", "phase", "backend", "requests", "keys", "threads", "forward, us", "GB/s",
                "of read or copy", "GFLOP/s", "of f32", "of bf16 dot", "of AMX", "other programs"},
               cells, 5);
}

std::string named_table(const ordered_json& rows, const std::vector<std::string>& keys, size_t left) {
  std::vector<std::vector<std::string>> cells;
  for (const ordered_json& row : rows) {
    std::vector<std::string> line;
    for (const std::string& key : keys)
      line.push_back(row[key].is_number_float() ? fmt::format("{:.1f}", row[key].get<double>()) : text(row[key]));
    cells.push_back(std::move(line));
  }
  return cells.empty() ? "" : table(keys, cells, left);
}

}  // namespace

std::string html_of(const ordered_json& answer) {
  std::string out = std::string(kStart) + kStyle + colours() + "</style></head><body><h1>anyattn bench</h1>";
  for (const auto& [key, value] : answer["machine"].items()) {
    std::string words;
    for (const ordered_json& word : value.is_array() ? value : ordered_json::array({value}))
      words += (words.empty() ? "" : " ") + text(word);
    out += fmt::format("<p>{}: {}</p>", escaped(key), escaped(words));
  }
  out += "<h2>Rows</h2>" + plots(answer["rows"]) + rows_table(answer["rows"]);
  out += "<h2>The machine's limits</h2>" + named_table(answer["limits"], {"limit", "unit", "threads", "rate"}, 2);
  out += "<h2>The runtime's own cost</h2>" +
         named_table(answer["own_cost"], {"call", "through_runtime_ns", "direct_ns", "own_ns"}, 1);
  if (!answer["skipped"].empty()) out += "<h2>Not measured</h2>" + named_table(answer["skipped"], {"what", "reason"}, 2);
  return out + "</body></html>\n";
}

void check_html_file(const std::string& file) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    throw Failure(kExitUsage, fmt::format("--html {}: no such folder: {}", file, folder.string()));
  std::ifstream in(file);
  if (!in) return;
  std::string start(std::strlen(kStart), '\0');
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  if (in.gcount() == 0 || start == kStart) return;
  throw Failure(kExitUsage, fmt::format("--html {}: the file exists and is no page of bench, so it is not written over; "
                                        "name another file or remove this one",
                                        file));
}

void write_html(const std::string& file, const std::string& html) {
  std::ofstream out(file, std::ios::binary);
  out << html << std::flush;
  if (!out) throw Failure(kExitFailed, fmt::format("--html {}: cannot write: {}", file, std::strerror(errno)));
}

}  // namespace anyattn::tools::bench
