// SPDX-License-Identifier: Apache-2.0
#include "bench/own_cost.h"

#include <functional>

#include "bench/measure.h"
#include "bench/noop_backend.h"
#include "common/interrupt.h"
#include "common/runtime.h"

namespace anyattn::tools::bench {
namespace {

OwnCost cost_of(const char* call, const TimingOptions& options, const std::function<void()>& through,
                const std::function<void()>& direct) {
  const uint64_t through_calls = calls_for(options.min_time_s, through), direct_calls = calls_for(options.min_time_s, direct);
  std::vector<double> with, without, differences;
  for (uint32_t pair = 0; pair < options.pairs && (pair == 0 || !interrupted()); ++pair) {
    with.push_back(nanoseconds(through_calls, through));
    without.push_back(nanoseconds(direct_calls, direct));
    differences.push_back(with.back() - without.back());
  }
  return {call, median(with), median(without), median(differences)};
}

}  // namespace

std::vector<OwnCost> measure_own_costs(const CommonOptions& common, const TimingOptions& options) {
  // A runtime of its own: a backend that is a must on the command line would overrule this one.
  Runtime runtime = open_runtime(common, "NOOP_ATTN");
  const std::string path = noop_plugin_path();
  runtime.register_backend("NOOP_ATTN", ANYATTN_DEVICE_CPU, path);
  Point point;
  point.heads = "own cost";
  point.phase = "decode";
  point.num_reqs = 8;
  point.seq_len = 64;
  point.cold = false;
  anyattn_problem& fields = point.problem.fields;
  fields.num_q_heads = 32;
  fields.num_kv_heads = 8;
  fields.head_size = fields.head_size_v = 128;
  fields.q_dtype = fields.out_dtype = ANYATTN_DTYPE_FLOAT32;
  point.problem.kv_cache_dtype("auto");
  Arena arena;
  Workload workload(runtime, {.device = "cpu", .backend = "NOOP_ATTN"}, point, arena);
  NoopBackend direct(path);
  workload.update();
  return {
      cost_of(
          "update", options, [&] { workload.update(); }, [&] { direct.update(workload.batch()); }),
      cost_of(
          "kv_cache_update", options, [&] { workload.store(); }, [&] { direct.store(workload.store_args()); }),
      cost_of(
          "forward", options, [&] { workload.forward(); }, [&] { direct.forward(workload.forward_args()); }),
  };
}

}  // namespace anyattn::tools::bench
