// SPDX-License-Identifier: Apache-2.0
#include "bench/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "anyattn/dtypes.hpp"
#include "bench/grid.h"
#include "common/changed_config.h"
#include "common/interrupt.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "tune/rounds.h"

namespace anyattn::tools::bench {
namespace {

using nlohmann::ordered_json;

constexpr const char* kOption = "tiles";
constexpr size_t kMost = 64;  // of one problem: a plugin that never refuses is no reason to go on for ever

class Tiles {
 public:
  explicit Tiles(const BenchOptions& options)
      : options_(options),
        threads_(thread_counts(options).back()),
        own_(open_runtime(options.common, options.backend, threads_)),
        rounds_({uint64_t{options.cold_mib} << 20, options.pairs, options.min_time_s}) {}

  ordered_json measure() {
    ordered_json rows = ordered_json::array();
    for (const Point& point : make_grid(options_)) {
      if (interrupted()) break;
      if (auto row = measure_point(point)) rows.push_back(std::move(*row));
    }
    return {{"rows", rows}, {"skipped", skipped_}, {"interrupted", interrupted()}};
  }

 private:
  // The runtimes of one plugin: [n] with option `tiles` at n.
  struct Plugin {
    Plugin(const CommonOptions& common, const Runtime& own) : config(common, own) {}
    ChangedConfig config;
    std::deque<Runtime> runtimes;
  };

  std::optional<ordered_json> measure_point(const Point& point) {
    const ordered_json asked = parse(own_.explain(point.problem.view(), options_.device));
    const ordered_json* choice = nullptr;
    for (const ordered_json& one : asked.at("choices"))
      if (const std::string phase = text_of(one, "phase"); phase == "both" || phase == point.phase) choice = &one;
    if (!choice) return skip(point, asked.at("error").is_null() ? "no backend takes it" : text_of(asked, "error"));
    const std::string backend = text_of(*choice, "backend"), plugin = text_of(*choice, "plugin");

    std::vector<Contender> contenders{{"auto", &own_, backend}};
    ordered_json tiles = ordered_json::array({{{"option", "auto"}, {"kernels", choice->at("report").at("kernels")}}});
    for (size_t number = 0; number < kMost; ++number) {
      const Runtime& runtime = runtime_of(plugin, number);
      const ordered_json answer = parse(runtime.explain(point.problem.view(), options_.device, backend));
      const auto& all = answer.at("candidates");
      const auto found = std::find_if(all.begin(), all.end(), [&](const ordered_json& one) {
        return one.at("backend") == backend && one.at("plugin") == plugin && !one.at("report").is_null();
      });
      if (found == all.end()) break;
      tiles.push_back({{"option", fmt::format("{}", number)}, {"kernels", found->at("report").at("kernels")}});
      contenders.push_back({tiles.back()["option"], &runtime, backend});
    }
    if (tiles.size() == 1) return skip(point, fmt::format("{} of {} cuts it in no other way", backend, plugin));

    Rounds::Answer answer = rounds_.measure(options_.device, point, contenders);
    if (!answer.complete) return std::nullopt;
    for (ordered_json& one : tiles) {
      if (const auto why = answer.failed.find(one["option"]); why != answer.failed.end())
        one["failed"] = why->second;
      else
        one.update(figures_of(answer.times.at(one["option"])));
    }
    return ordered_json{{"heads", point.heads},
                        {"dtype", dtype_name(point.problem.fields.q_dtype)},
                        {"kv_cache_dtype", point.problem.view().kv_cache_dtype},
                        {"batch_invariant", point.problem.has(ANYATTN_FEATURE_BATCH_INVARIANT)},
                        {"shape", shape_of(point)},
                        {"backend", backend},
                        {"plugin", plugin},
                        {"tiles", tiles}};
  }

  const Runtime& runtime_of(const std::string& plugin, size_t number) {
    Plugin& of = plugins_.try_emplace(plugin, options_.common, own_).first->second;
    while (of.runtimes.size() <= number) {
      of.config.set_entry(plugin, fmt::format("options.{}", kOption), fmt::format("{}", of.runtimes.size()));
      of.runtimes.push_back(open_runtime(of.config.write(), options_.backend, threads_));
    }
    return of.runtimes[number];
  }

  static std::string shape_of(const Point& point) {
    return fmt::format("{} {} x {}{}", point.phase, point.num_reqs, point.seq_len, point.cold ? "" : ", hot");
  }
  std::optional<ordered_json> skip(const Point& point, const std::string& why) {
    skipped_.push_back({{"heads", point.heads}, {"shape", shape_of(point)}, {"reason", why}});
    return std::nullopt;
  }

  const BenchOptions& options_;
  const uint32_t threads_;
  const Runtime own_;
  std::map<std::string, Plugin> plugins_;
  Rounds rounds_;  // goes before the runtimes
  ordered_json skipped_ = ordered_json::array();
};

}  // namespace

ordered_json measure_tiles(const BenchOptions& options) { return Tiles(options).measure(); }

std::string tiles_text(const ordered_json& answer, const Terminal& terminal) {
  Table table({{"problem"},
               {"tiles", Align::kRight},
               {"median us", Align::kRight},
               {"fastest", Align::kRight},
               {"slowest", Align::kRight},
               {"gain"},
               {"kernels"}});
  for (const ordered_json& row : answer["rows"]) {
    const ordered_json& first = row["tiles"][0];
    std::string problem =
        fmt::format("{} {} {}{}, {}", text_of(row, "heads"), text_of(row, "kv_cache_dtype"), text_of(row, "shape"),
                    row["batch_invariant"].get<bool>() ? ", batch invariant" : "", text_of(row, "backend"));
    for (const ordered_json& one : row["tiles"]) {
      const bool ran = !one.contains("failed");
      const auto us = [&](const char* key) { return ran ? fmt::format("{:.1f}", one.at(key).get<double>()) : std::string(); };
      const std::string gain = !ran || first.contains("failed") || one == first ? "" : gain_text(one, first);
      table.add({problem,
                 {text_of(one, "option"), Colour::kBold},
                 us("median_us"),
                 us("fastest_us"),
                 us("slowest_us"),
                 ran ? gain : printable(text_of(one, "failed")),
                 printable(text_of(one, "kernels"))});
      problem.clear();
    }
  }
  Table skipped({{"not measured"}, {"because"}});
  for (const ordered_json& one : answer["skipped"])
    skipped.add({fmt::format("{} {}", text_of(one, "heads"), text_of(one, "shape")), printable(text_of(one, "reason"))});
  return fmt::format("{}{}{}", table.render(terminal), table.empty() || skipped.empty() ? "" : "\n", skipped.render(terminal));
}

}  // namespace anyattn::tools::bench
