// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "anyattn/dtypes.hpp"
#include "common/table.h"

namespace anyattn::tools::bench {
namespace {

using nlohmann::ordered_json;

std::string text(const ordered_json& value) { return value.get<std::string>(); }

std::string number(const ordered_json& value, int digits) { return fmt::format("{:.{}f}", value.get<double>(), digits); }

// "78 %", or nothing where the row has no such limit.
std::string share(const ordered_json& row, std::initializer_list<const char*> limits) {
  for (const char* limit : limits) {
    const auto found = row["shares"].find(limit);
    if (found != row["shares"].end()) return fmt::format("{:.0f} %", 100 * (*found)["share"].get<double>());
  }
  return "";
}

std::string own_cost_text(const ordered_json& costs, const Terminal& terminal) {
  Table table({{"the runtime's own cost"},
               {"through it, ns", Align::kRight},
               {"direct, ns", Align::kRight},
               {"own, ns", Align::kRight}});
  for (const ordered_json& cost : costs) {
    table.add({text(cost["call"]),
               number(cost["through_runtime_ns"], 1),
               number(cost["direct_ns"], 1),
               {number(cost["own_ns"], 1), Colour::kBold}});
  }
  return table.render(terminal);
}

// A whole prompt has none: what it costs lies elsewhere.
bool reads_old_keys(const ordered_json& row) { return row["query_len"] < row["seq_len"]; }

// Of what did not run on the processor: none.
std::string threads_text(const ordered_json& row) { return row["threads"] == 0 ? "" : row["threads"].dump(); }

std::string limits_text(const ordered_json& limits, const Terminal& terminal) {
  Table table({{"the machine's limits"}, {"threads", Align::kRight}, {"rate", Align::kRight}, {""}});
  for (const ordered_json& limit : limits)
    table.add({text(limit["limit"]), threads_text(limit), number(limit["rate"], 1), text(limit["unit"])});
  return table.render(terminal);
}

// A line where other programs had more than a twentieth of the processors: the figures are then theirs too.
std::string neighbours_text(const ordered_json& rows, const Terminal& terminal) {
  constexpr double kNoticed = 0.05;
  double most = 0;
  size_t count = 0;
  for (const ordered_json& row : rows) {
    const double others = row["others"].get<double>();
    most = std::max(most, others);
    count += others > kNoticed ? 1 : 0;
  }
  if (count == 0) return "";
  return terminal.paint(
      fmt::format("other programs had up to {:.0f} % of the processors during {} of {} rows\n", 100 * most, count, rows.size()),
      Colour::kYellow);
}

// Both products at their whole size; an attention call has the softmax besides and may leave out what no row sees.
std::string peers_text(const ordered_json& rows, const Terminal& terminal) {
  Table table({{"products of other libraries, hot, beside"},
               {"forward, us", Align::kRight},
               {"peer"},
               {"q k^T, us", Align::kRight},
               {"p v, us", Align::kRight}});
  for (const ordered_json& row : rows) {
    for (const auto& [name, peer] : row["peers"].items())
      table.add({name_of(row), number(row["forward_us"], 1), name, number(peer["scores_us"], 1), number(peer["values_us"], 1)});
  }
  return table.empty() ? "" : "\n" + table.render(terminal);
}

// How rows of a device were timed, and what the limit beside them is.
std::string device_text(const ordered_json& rows) {
  const auto is_device = [](const ordered_json& row) { return row["threads"] == 0; };
  const auto found = std::find_if(rows.begin(), rows.end(), is_device);
  if (found == rows.end()) return "";
  return fmt::format(
      "timed by the device's events over {}; the copy is one inside its memory, bytes read and written; host: queueing a "
      "call\n",
      text((*found)["timed_by"]));
}

std::string phase_text(const ordered_json& row) {
  std::string phase = text(row["phase"]);
  if (reads_old_keys(row)) phase += row["cold"].get<bool>() ? ", cold" : ", hot";
  if (row["batch_invariant"].get<bool>()) phase += ", batch invariant";
  return phase;
}

// A column of the rows' table. What a row has nothing for is empty there.
struct RowColumn {
  enum class Shown {
    kOnce,  // above the table where every row says the same
    kAlways,
    kWide  // where all columns are asked for
  };
  Column column;
  Shown shown;
  std::string (*cell)(const ordered_json&);
};

const std::vector<RowColumn>& row_columns() {
  using Json = const ordered_json&;
  using enum RowColumn::Shown;
  static const std::vector<RowColumn> columns{
      {{"heads"}, kOnce, [](Json row) { return text(row["heads"]); }},
      {{"q"}, kOnce, [](Json row) { return text(row["dtype"]); }},
      {{"cache"}, kOnce, [](Json row) { return text(row["kv_cache_dtype"]); }},
      {{"phase"}, kOnce, phase_text},
      {{"requests x keys"},
       kAlways,
       [](Json row) { return fmt::format("{} x {}", row["num_reqs"].dump(), row["seq_len"].dump()); }},
      {{"threads", Align::kRight}, kOnce, threads_text},
      {{"backend"}, kOnce, [](Json row) { return text(row["backend"]); }},
      {{"forward, us", Align::kRight}, kAlways, [](Json row) { return number(row["forward_us"], 1); }},
      {{"host, us", Align::kRight},
       kAlways,
       [](Json row) { return row["threads"] == 0 ? number(row["host_us"], 1) : std::string(); }},
      {{"GB/s", Align::kRight},
       kAlways,
       [](Json row) { return reads_old_keys(row) ? number(row["gb_per_s"], 2) : std::string(); }},
      {{"of read or copy", Align::kRight},
       kAlways,
       [](Json row) { return share(row, {"dram_read", "cached_read", "device_copy"}); }},
      {{"GFLOP/s", Align::kRight}, kAlways, [](Json row) { return number(row["gflop_per_s"], 1); }},
      {{"of f32", Align::kRight}, kWide, [](Json row) { return share(row, {"f32_fma"}); }},
      {{"of bf16 dot", Align::kRight}, kWide, [](Json row) { return share(row, {"bf16_dot"}); }},
      {{"of AMX", Align::kRight}, kWide, [](Json row) { return share(row, {"bf16_amx"}); }},
      {{"ns a key", Align::kRight},
       kWide,
       [](Json row) { return reads_old_keys(row) ? number(row["ns_a_key"], 1) : std::string(); }},
      {{"speed", Align::kRight}, kAlways, [](Json row) {
         return row["against"].is_null() ? std::string() : fmt::format("x {:.2f}", row["against"]["speed"].get<double>());
       }}};
  return columns;
}

// Columns that are empty in every row are left out.
std::string row_table(const ordered_json& rows, const Terminal& terminal, bool wide) {
  std::string common;
  std::vector<Column> titles;
  std::vector<const RowColumn*> kept;
  for (const RowColumn& one : row_columns()) {
    const std::string first = one.cell(rows.front());
    const bool same = std::all_of(rows.begin(), rows.end(), [&](const ordered_json& row) { return one.cell(row) == first; });
    if (same && first.empty()) continue;
    if (!wide && one.shown == RowColumn::Shown::kWide) continue;
    if (!wide && same && one.shown == RowColumn::Shown::kOnce) {
      common += fmt::format("{}{} {}", common.empty() ? "" : "; ", one.column.title, first);
      continue;
    }
    titles.push_back(one.column);
    kept.push_back(&one);
  }
  Table table(titles);
  for (const ordered_json& row : rows) {
    std::vector<Cell> cells;
    cells.reserve(kept.size());
    for (const RowColumn* one : kept)
      cells.emplace_back(one->cell(row), one->column.title == "of read or copy" ? Colour::kBold : Colour::kPlain);
    table.add(std::move(cells));
  }
  return (common.empty() ? "" : common + "\n") + table.render(terminal);
}

std::string rows_text(const ordered_json& rows, const Terminal& terminal, bool wide) {
  return row_table(rows, terminal, wide) + device_text(rows) + neighbours_text(rows, terminal) + peers_text(rows, terminal);
}

std::string skipped_text(const ordered_json& skipped, const Terminal& terminal) {
  Table table({{"not measured"}, {"because"}});
  for (const ordered_json& row : skipped) table.add({text(row["what"]), printable(text(row["reason"]))});
  return table.render(terminal);
}

}  // namespace

ordered_json json_of(const OwnCost& cost) {
  return {{"call", cost.call}, {"through_runtime_ns", cost.through_ns}, {"direct_ns", cost.direct_ns}, {"own_ns", cost.own_ns}};
}

ordered_json json_of(const Limit& limit) {
  return {{"limit", limit.name}, {"threads", limit.threads}, {"rate", limit.rate}, {"unit", limit.unit}};
}

ordered_json json_of(const Row& row) {
  const Point& point = row.point;
  ordered_json shares = ordered_json::object();
  for (const Share& s : row.shares) shares[s.limit] = {{"rate", s.rate}, {"share", s.share}};
  ordered_json peers = ordered_json::object();
  for (const Peer& peer : row.peers) peers[peer.name] = {{"scores_us", peer.scores_us}, {"values_us", peer.values_us}};
  return {{"heads", point.heads},
          {"dtype", dtype_name(point.problem.fields.q_dtype)},
          {"kv_cache_dtype", row.kv_cache_dtype},
          {"batch_invariant", point.problem.has(ANYATTN_FEATURE_BATCH_INVARIANT)},
          {"phase", point.phase},
          {"num_reqs", point.num_reqs},
          {"query_len", point.query_len},
          {"seq_len", point.seq_len},
          {"cold", point.cold},
          {"shuffled", point.shuffled},
          {"threads", row.threads},
          {"backend", row.backend},
          {"plugin", row.plugin},
          {"block_size", row.block_size},
          {"layout", row.layout},
          {"bytes_a_key", row.bytes_a_key},
          {"forward_us", row.forward_us},
          {"fastest_us", row.fastest_us},
          {"slowest_us", row.slowest_us},
          {"gb_per_s", row.gb_per_s},
          {"gflop_per_s", row.gflop_per_s},
          {"ns_a_key", row.ns_a_key},
          {"timed_by", row.timed_by},
          {"host_us", row.host_us},
          {"others", row.others},
          {"shares", std::move(shares)},
          {"peers", std::move(peers)}};
}

ordered_json json_of(const Skipped& skipped) { return {{"what", skipped.what}, {"reason", skipped.reason}}; }

void set_against(ordered_json& rows) {
  // Everything but the two.
  const auto same = [](const ordered_json& a, const ordered_json& b) {
    for (const char* key : {"heads", "dtype", "phase", "num_reqs", "query_len", "seq_len", "cold", "threads"}) {
      if (a[key] != b[key]) return false;
    }
    return true;
  };
  for (ordered_json& row : rows) {
    const auto first = std::find_if(rows.begin(), rows.end(), [&](const ordered_json& other) { return same(other, row); });
    row["against"] = nullptr;
    if (&*first == &row) continue;
    const double speed = (*first)["forward_us"].get<double>() / row["forward_us"].get<double>();
    row["against"] = {{"kv_cache_dtype", (*first)["kv_cache_dtype"]}, {"speed", speed}};
  }
}

std::string text_of(const ordered_json& answer, const Terminal& terminal, bool wide) {
  std::string out;
  const auto add = [&](const char* key, auto&& render) {
    const auto part = answer.find(key);
    if (part == answer.end() || part->empty()) return;
    out += (out.empty() ? "" : "\n") + render(*part, terminal);
  };
  add("own_cost", own_cost_text);
  add("limits", limits_text);
  add("rows", [wide](const ordered_json& rows, const Terminal& to) { return rows_text(rows, to, wide); });
  add("skipped", skipped_text);
  return out;
}

std::string name_of(const ordered_json& row) {
  std::string name = fmt::format("{} {} {} {} {} x {}/{}", text(row["heads"]), text(row["dtype"]), text(row["kv_cache_dtype"]),
                                 text(row["phase"]), row["num_reqs"].dump(), row["query_len"].dump(), row["seq_len"].dump());
  if (reads_old_keys(row)) name += row["cold"].get<bool>() ? " cold" : " hot";
  if (row["shuffled"].get<bool>()) name += " shuffled";
  if (row["batch_invariant"].get<bool>()) name += " batch-invariant";
  if (row["threads"] == 0) return name;  // on a device of its own
  return name + fmt::format(", {} {}", row["threads"].dump(), row["threads"] == 1 ? "thread" : "threads");
}

}  // namespace anyattn::tools::bench
