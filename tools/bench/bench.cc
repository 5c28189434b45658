// SPDX-License-Identifier: Apache-2.0
// anyattn bench: what the runtime itself costs a call, then the chosen backend on a few decode and prefill shapes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "anyattn/dtypes.hpp"
#include "bench/measure.h"
#include "bench/noop_backend.h"
#include "bench/workload.h"
#include "common/interrupt.h"
#include "common/runtime.h"
#include "common/table.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

using bench::nanoseconds;
using bench::Workload;
using bench::WorkloadShape;
using nlohmann::ordered_json;

// Heads of an 8B model; sizes that a laptop's memory and patience hold.
const WorkloadShape kShapes[] = {
    {.name = "decode 1 x 1024", .num_reqs = 1, .query_len = 1, .seq_len = 1024},
    {.name = "decode 8 x 1024", .num_reqs = 8, .query_len = 1, .seq_len = 1024},
    {.name = "decode 1 x 8192", .num_reqs = 1, .query_len = 1, .seq_len = 8192},
    {.name = "prefill 1 x 256", .num_reqs = 1, .query_len = 256, .seq_len = 256},
    {.name = "chunk 1 x 128 of 1024", .num_reqs = 1, .query_len = 128, .seq_len = 1024},
};

struct Cost {
  const char* call;
  double through_ns;
  double direct_ns;
};

// The same call on a backend that computes nothing, through the runtime and on its table; the difference is the runtime's own.
std::vector<Cost> own_costs(const CommonOptions& common, double min_time_s) {
  // A runtime of its own: a backend that is a must on the command line would overrule this one.
  Runtime runtime = open_runtime(common.config_file, "NOOP_ATTN");
  const std::string path = bench::noop_plugin_path();
  runtime.register_backend("NOOP_ATTN", ANYATTN_DEVICE_CPU, path);
  TargetOptions target;
  target.device = "cpu";
  Workload workload(runtime, target, "NOOP_ATTN", {.name = "own cost", .num_reqs = 8, .query_len = 1, .seq_len = 64});
  bench::NoopBackend direct(path);
  workload.update();
  return {
      {"update", nanoseconds(min_time_s, [&] { workload.update(); }),
       nanoseconds(min_time_s, [&] { direct.update(workload.batch()); })},
      {"kv_cache_update", nanoseconds(min_time_s, [&] { workload.store(); }),
       nanoseconds(min_time_s, [&] { direct.store(workload.store_args()); })},
      {"forward", nanoseconds(min_time_s, [&] { workload.forward(); }),
       nanoseconds(min_time_s, [&] { direct.forward(workload.forward_args()); })},
  };
}

ordered_json json_of(const std::vector<Cost>& costs) {
  ordered_json rows = ordered_json::array();
  for (const Cost& cost : costs) {
    rows.push_back({{"call", cost.call},
                    {"through_runtime_ns", cost.through_ns},
                    {"direct_ns", cost.direct_ns},
                    {"own_ns", cost.through_ns - cost.direct_ns}});
  }
  return rows;
}

ordered_json measure(const Runtime& runtime, const TargetOptions& target, const WorkloadShape& shape, double min_time_s) {
  Workload workload(runtime, target, "", shape);
  workload.update();
  const double ns = nanoseconds(min_time_s, [&] { workload.forward(); });
  const anyattn_group_info& info = workload.info();
  return {{"shape", shape.name},
          {"backend", shape.query_len == 1 ? info.decode_backend : info.backend},
          {"plugin", info.plugin},
          {"dtype", dtype_name(workload.dtype())},
          {"kv_cache_dtype", info.kv_cache_dtype},
          {"block_size", info.block_size},
          {"forward_us", ns / 1e3},
          {"gb_per_s", shape.bytes(dtype_bytes(workload.dtype())) / ns},
          {"gflop_per_s", shape.flops() / ns}};
}

void print_costs(const ordered_json& costs, const Terminal& terminal) {
  Table table({{"the runtime's own cost"},
               {"through it, ns", Align::kRight},
               {"direct, ns", Align::kRight},
               {"own, ns", Align::kRight}});
  for (const ordered_json& cost : costs) {
    table.add({cost["call"].get<std::string>(),
               fmt::format("{:.1f}", cost["through_runtime_ns"].get<double>()),
               fmt::format("{:.1f}", cost["direct_ns"].get<double>()),
               {fmt::format("{:.1f}", cost["own_ns"].get<double>()), Colour::kBold}});
  }
  fmt::print("{}", table.render(terminal));
}

void print_shapes(const ordered_json& rows, const Terminal& terminal) {
  Table table({{"requests x keys"},
               {"backend"},
               {"dtype"},
               {"block", Align::kRight},
               {"forward, us", Align::kRight},
               {"GB/s", Align::kRight},
               {"GFLOP/s", Align::kRight}});
  for (const ordered_json& row : rows) {
    table.add({row["shape"].get<std::string>(), row["backend"].get<std::string>(), row["dtype"].get<std::string>(),
               row["block_size"].dump(), fmt::format("{:.1f}", row["forward_us"].get<double>()),
               fmt::format("{:.2f}", row["gb_per_s"].get<double>()), fmt::format("{:.2f}", row["gflop_per_s"].get<double>())});
  }
  fmt::print("\n32 query heads, 8 kv heads, head size 128\n{}", table.render(terminal));
}

}  // namespace

int bench_backend(const BenchOptions& options) {
  const JsonOutput output(options.common.json);
  const Runtime runtime = open_runtime(options.common.config_file, options.target.backend);
  catch_interrupt();
  const Terminal terminal = terminal_of(1);
  ordered_json answer{{"own_cost", json_of(own_costs(options.common, options.min_time_s))}, {"shapes", ordered_json::array()}};
  if (output.table()) print_costs(answer["own_cost"], terminal);
  for (const WorkloadShape& shape : kShapes) {
    if (interrupted()) break;
    answer["shapes"].push_back(measure(runtime, options.target, shape, options.min_time_s));
  }
  if (output.table()) print_shapes(answer["shapes"], terminal);
  answer["interrupted"] = interrupted();
  output.write(answer);
  return interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace anyattn::tools
