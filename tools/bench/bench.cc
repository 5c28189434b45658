// SPDX-License-Identifier: Apache-2.0
// anyattn bench: what the runtime itself costs a call, then the chosen backend on a grid of problems against the machine's limits.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "anyattn/dtypes.hpp"
#include "bench/compare.h"
#include "bench/device_timing.h"
#include "bench/grid.h"
#include "bench/html.h"
#include "bench/limits.h"
#include "bench/own_cost.h"
#include "bench/report.h"
#include "bench/tiles.h"
#include "bench/timing.h"
#include "common/changed_config.h"
#include "common/interrupt.h"
#include "common/runtime.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

std::string name_of(const bench::Point& point) {
  return fmt::format("{} {} {} {} x {}", point.heads, dtype_name(point.problem.fields.q_dtype),
                     point.problem.view().kv_cache_dtype, point.phase, point.num_reqs, point.seq_len);
}

// A line on standard error that says what is measured now.
void show(const std::string& text) {
  if (terminal_of(2).interactive) fmt::print(stderr, "\r\x1b[K{}", text);
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        timing_{options.pairs, options.min_time_s},
        workload_{options.device, options.backend, uint64_t{options.cold_mib} << 20},
        grid_(bench::make_grid(options)) {
    for (const uint32_t threads : bench::thread_counts(options))
      runtimes_.push_back(std::make_unique<Runtime>(open_runtime(options.common, options.backend, threads)));
  }

  ordered_json measure() {
    ordered_json answer{{"machine", machine()},
                        {"own_cost", ordered_json::array()},
                        {"limits", ordered_json::array()},
                        {"rows", ordered_json::array()},
                        {"skipped", ordered_json::array()}};
    show("own cost");
    for (const bench::OwnCost& cost : bench::measure_own_costs(options_.common, timing_))
      answer["own_cost"].push_back(json_of(cost));
    measure_limits(answer["limits"]);
    for (const bench::Point& point : grid_) {
      for (const auto& runtime : runtimes_) {
        if (copies_ && runtime != runtimes_.front()) break;  // threads are nothing to another device
        if (interrupted()) break;
        show(copies_ ? name_of(point) : fmt::format("{}, {} threads", name_of(point), runtime->num_workers()));
        measure_row(*runtime, point, answer);
      }
    }
    show("");
    bench::set_against(answer["rows"]);
    answer["interrupted"] = interrupted();
    return answer;
  }

 private:
  // date, processor, cores, instruction sets, caches, version.
  ordered_json machine() const {
    const ordered_json devices = parse(runtimes_.front()->devices());
    ordered_json machine{{"date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
                         {"anyattn", anyattn_version()}};
    for (const ordered_json& device : devices["devices"]) machine[device["kind"].get<std::string>()] = device["name"];
    for (const auto& [key, value] : devices["cpu"].items()) machine["cpu " + key] = value;
    return machine;
  }

  void measure_limits(ordered_json& limits) {
    const Device device = runtimes_.front()->resolve_device(options_.device);
    if (interrupted()) return;
    if (device.kind != ANYATTN_DEVICE_CPU) {
      show("limits");
      copies_.emplace(*runtimes_.front(), device);
      std::vector<double> rates;
      for (uint32_t i = 0; i < options_.pairs; ++i) rates.push_back(copies_->gb_per_s());
      limits.push_back(json_of(bench::Limit{"device_copy", "GB/s", 0, bench::median(rates)}));
      return;
    }
    if (workload_.cold_bytes == 0) return;
    arena_.reserve(*runtimes_.front(), device, workload_.cold_bytes);
    std::memset(arena_.data(), 1, arena_.bytes());  // pages that were never written are all the same one
    for (const auto& runtime : runtimes_) {
      if (interrupted()) return;
      show("limits");
      for (const bench::Limit& limit : bench::measure_limits(*runtime, {arena_.data(), arena_.bytes()}, options_.pairs))
        limits.push_back(json_of(limit));
    }
  }

  void measure_row(const Runtime& runtime, const bench::Point& point, ordered_json& answer) {
    try {
      auto row = copies_ ? bench::time_device_row(runtime, workload_, point, arena_, *copies_, timing_)
                         : bench::time_row(runtime, workload_, point, arena_, timing_);
      if (row && options_.peers && !interrupted())
        row->peers = measure_peers(point, row->kv_cache_dtype, row->threads, options_.pairs, options_.min_time_s);
      if (row) answer["rows"].push_back(json_of(*row));
    } catch (const RuntimeError& error) {
      // Nobody takes the problem, or there is not the memory: a row less, said below.
      const bool expected = error.status() == ANYATTN_UNSUPPORTED || error.status() == ANYATTN_MEMORY_NOT_NOW ||
                            error.status() == ANYATTN_OUT_OF_MEMORY;
      if (!expected) throw;
      ordered_json one = json_of(bench::Skipped{name_of(point), error.what()});
      ordered_json& skipped = answer["skipped"];
      if (skipped.empty() || skipped.back() != one) skipped.push_back(std::move(one));  // else another number of threads
    }
  }

  const BenchOptions& options_;
  bench::TimingOptions timing_;
  bench::WorkloadOptions workload_;
  std::vector<bench::Point> grid_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;  // one a thread count
  bench::Arena arena_;                              // goes before the runtimes
  std::optional<bench::DeviceCopies> copies_;       // where the device is not the CPU; likewise
};

}  // namespace

int bench_backend(const BenchOptions& options) {
  const JsonOutput output(options.common.json);
  if (!options.compare.empty()) {
    if (options.compare.size() != 2)
      throw Failure(kExitUsage, fmt::format("--compare: {} file{} given; wanted: two that --json wrote, before and after",
                                            options.compare.size(), options.compare.size() == 1 ? "" : "s"));
    const ordered_json before = bench::read_answer(options.compare[0]);
    const ordered_json comparison = bench::compare(before, bench::read_answer(options.compare[1]));
    if (output.table()) fmt::print("{}", bench::comparison_text(comparison, terminal_of(1)));
    output.write(comparison);
    return kExitOk;
  }
  if (!options.html.empty()) bench::check_html_file(options.html);
  BenchOptions own = options;
  std::optional<ChangedConfig> config;
  if (!options.provider.empty()) {
    config.emplace(options.common, open_runtime(options.common, ""));
    config->add_plugin(options.provider);
    own.common = config->write();
  }
  catch_interrupt();
  if (own.tiles) {
    const ordered_json answer = bench::measure_tiles(own);
    if (output.table()) fmt::print("{}", bench::tiles_text(answer, terminal_of(1)));
    output.write(answer);
    return interrupted() ? kExitInterrupted : answer["rows"].empty() ? kExitFailed : kExitOk;
  }
  Bench bench(own);
  const ordered_json answer = bench.measure();
  if (output.table()) fmt::print("{}", bench::text_of(answer, terminal_of(1), options.wide));
  output.write(answer);
  if (!options.html.empty()) bench::write_html(options.html, bench::html_of(answer));
  if (interrupted()) return kExitInterrupted;
  return answer["rows"].empty() ? kExitFailed : kExitOk;
}

}  // namespace anyattn::tools
