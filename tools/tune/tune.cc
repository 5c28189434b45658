// SPDX-License-Identifier: Apache-2.0
// anyattn tune: every backend that takes a model's problems, measured against the others, as a profile for selection.profile.
#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/grid.h"
#include "common/interrupt.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "tune/profile_file.h"
#include "tune/rounds.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

BenchOptions grid_options(const TuneOptions& options, const std::string& model) {
  BenchOptions grid;
  grid.model = model;
  grid.models_file = options.models_file;
  grid.contexts = options.contexts;
  grid.prompts = options.prompts;
  grid.batches = options.batches;
  if (!options.target.dtype.empty()) grid.dtypes = {options.target.dtype};
  if (!options.target.kv_cache_dtype.empty()) grid.kv_cache_dtypes = {options.target.kv_cache_dtype};
  grid.block_size = options.target.block_size;
  return grid;
}

std::string shape_of(const bench::Point& point) {
  return fmt::format("{} {} x {}", point.phase, point.num_reqs, point.seq_len);
}

ordered_json times_of(const std::string& backend, const std::vector<double>& rounds) {
  ordered_json times{{"backend", backend}};
  times.update(figures_of(rounds));
  return times;
}

class Tuner {
 public:
  explicit Tuner(const TuneOptions& options)
      : options_(options),
        runtime_(open_runtime(options.common, "")),
        rounds_({uint64_t{options.cold_mib} << 20, options.rounds, options.min_time_s}),
        device_(options.target.device) {}

  // {profile, skipped[], interrupted}; profile null where nothing was measured.
  ordered_json measure() {
    for (const std::string& model : options_.models) {
      const std::vector<bench::Point> grid = bench::make_grid(grid_options(options_, model));
      for (auto first = grid.begin(); first != grid.end() && !interrupted();) {
        const auto last = std::find_if(first, grid.end(), [&](const auto& point) { return point.heads != first->heads; });
        measure_problem(first->heads, {first, last});
        first = last;
      }
    }
    ordered_json answer{{"profile", nullptr}, {"skipped", skipped_}, {"interrupted", interrupted()}};
    if (entries_.empty()) return answer;
    answer["profile"] = profile_head(runtime_, options_, device_, plugins_);
    answer["profile"]["entries"] = entries_;
    return answer;
  }

 private:
  // The shapes of one problem, each measured with every backend that takes it: in the order that holds without a profile.
  void measure_problem(const std::string& layers, const std::vector<bench::Point>& points) {
    const ordered_json asked = parse(runtime_.explain(points.front().problem.view(), device_));
    device_ = text_of(asked, "device");  // what "auto" came to, for good
    const std::string key = text_of(asked.at("profile"), "key");
    if (!keys_.insert(key).second) return;
    std::vector<ordered_json> able;
    for (const ordered_json& candidate : asked.at("candidates")) {
      const std::string verdict = text_of(candidate, "verdict");
      const bool is_new = std::ranges::none_of(able, [&](const auto& one) { return one["backend"] == candidate["backend"]; });
      if ((verdict == "chosen" || verdict == "eligible") && is_new) able.push_back(candidate);
    }
    std::ranges::sort(able, {}, [](const ordered_json& candidate) { return candidate.at("place").get<uint32_t>(); });
    std::vector<std::string> names;
    for (const ordered_json& candidate : able) names.push_back(text_of(candidate, "backend"));
    if (names.size() < 2) {
      skip(layers, names.empty() ? "" : names[0], names.empty() ? "no backend takes it" : "no other backend takes it");
      return;
    }
    const ordered_json shapes = measure_shapes(layers, points, names);
    if (interrupted() || names.size() < 2) return;
    for (const ordered_json& candidate : able)
      if (std::ranges::find(names, text_of(candidate, "backend")) != names.end()) plugins_.insert(text_of(candidate, "plugin"));
    entries_.push_back({{"problem", key}, {"layers", layers}, {"shapes", shapes}});
  }

  // Takes names away that could not be measured: what is left has times in every shape.
  ordered_json measure_shapes(const std::string& layers, const std::vector<bench::Point>& points,
                              std::vector<std::string>& names) {
    std::vector<std::pair<std::string, Rounds::Answer>> answers;
    for (const bench::Point& point : points) {
      if (terminal_of(2).interactive) fmt::print(stderr, "\r\x1b[K{}, {}", layers, shape_of(point));
      answers.emplace_back(shape_of(point), rounds_.measure(device_, point, contenders(names)));
      for (const auto& [name, why] : answers.back().second.failed) {
        skip(layers, name, fmt::format("{}: {}", shape_of(point), why));
        std::erase(names, name);
      }
      if (!answers.back().second.complete) break;
    }
    if (terminal_of(2).interactive) fmt::print(stderr, "\r\x1b[K");
    ordered_json shapes = ordered_json::array();
    for (const auto& [shape, answer] : answers) {
      ordered_json times = ordered_json::array();
      for (const std::string& name : names)
        if (const auto found = answer.times.find(name); found != answer.times.end())
          times.push_back(times_of(name, found->second));
      shapes.push_back({{"shape", shape}, {"times", times}});
    }
    return shapes;
  }

  std::vector<Contender> contenders(const std::vector<std::string>& names) const {
    std::vector<Contender> all;
    for (const std::string& name : names) all.push_back({name, &runtime_, name});
    return all;
  }

  void skip(const std::string& layers, const std::string& backend, const std::string& why) {
    skipped_.push_back(
        {{"layers", layers}, {"backend", backend.empty() ? ordered_json(nullptr) : ordered_json(backend)}, {"reason", why}});
  }

  const TuneOptions& options_;
  const Runtime runtime_;
  Rounds rounds_;
  std::string device_;
  std::set<std::string> keys_, plugins_;
  ordered_json entries_ = ordered_json::array(), skipped_ = ordered_json::array();
};

void print(const ordered_json& answer) {
  const Terminal terminal = terminal_of(1);
  Table table({{"layers"},
               {"shape"},
               {"backend"},
               {"median us", Align::kRight},
               {"fastest", Align::kRight},
               {"slowest", Align::kRight},
               {"gain"}});
  if (!answer["profile"].is_null()) {
    for (const ordered_json& entry : answer["profile"]["entries"])
      for (const ordered_json& shape : entry["shapes"])
        for (const ordered_json& times : shape["times"])
          table.add({text_of(entry, "layers"),
                     text_of(shape, "shape"),
                     {text_of(times, "backend"), Colour::kBold},
                     fmt::format("{:.1f}", times["median_us"].get<double>()),
                     fmt::format("{:.1f}", times["fastest_us"].get<double>()),
                     fmt::format("{:.1f}", times["slowest_us"].get<double>()),
                     times == shape["times"][0] ? "first of the order" : gain_text(times, shape["times"][0])});
  }
  fmt::print("{}", table.render(terminal));
  Table skipped({{"not measured"}, {"backend"}, {"because"}});
  for (const ordered_json& one : answer["skipped"])
    skipped.add({text_of(one, "layers"), text_of(one, "backend"), printable(text_of(one, "reason"))});
  fmt::print("{}{}", table.empty() || skipped.empty() ? "" : "\n", skipped.render(terminal));
}

}  // namespace

int tune(const TuneOptions& options) {
  const JsonOutput output(options.common.json);
  catch_interrupt();
  Tuner tuner(options);
  ordered_json answer = tuner.measure();
  const bool done = !interrupted() && !answer["profile"].is_null();
  if (done) write_profile(options.out, answer["profile"]);
  answer["file"] = done ? ordered_json(options.out) : ordered_json(nullptr);
  if (output.table()) {
    print(answer);
    if (done)
      fmt::print("\n{}: name it in the configuration: selection: {{profile: {}}}; 'anyattn explain' shows what it changes\n",
                 options.out, options.out);
    else
      fmt::print("\n{}: not written: {}\n", options.out, interrupted() ? "interrupted" : "there is nothing to compare");
  }
  output.write(answer);
  if (interrupted()) return kExitInterrupted;
  return done ? kExitOk : kExitFailed;
}

}  // namespace anyattn::tools
