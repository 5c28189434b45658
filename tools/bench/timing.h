// SPDX-License-Identifier: Apache-2.0
// One row of the grid measured: the call and the machine's limits in turn, medians of the pairs. Included by bench.
// Prints nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "bench/peers.h"
#include "bench/workload.h"

namespace anyattn::tools::bench {

struct TimingOptions {
  uint32_t pairs = 9;
  double min_time_s = 0.02;  // a sample of the call
};

// A limit of this row and the call's share of it, each the median over the pairs.
struct Share {
  std::string limit;  // dram_read, cached_read, f32_fma, bf16_dot, bf16_amx
  double rate;        // GB/s or GFLOP/s
  double share;       // 1 = at the limit
};

struct Row {
  Point point;
  uint32_t threads = 0;
  std::string backend, plugin, kv_cache_dtype, layout;
  uint32_t block_size = 0;
  double bytes_a_key = 0;
  double forward_us = 0, fastest_us = 0, slowest_us = 0;  // of the samples' means
  double gb_per_s = 0;                                    // keys and values, each once
  double gflop_per_s = 0;                                 // visible keys only
  double ns_a_key = 0;                                    // a request's key
  std::string timed_by = "calls";                         // or "graph replays"
  double host_us = 0;                                     // to queue a call, where the device is not the CPU; else 0
  double others = 0;                                      // processor time of other programs meanwhile, of all there is
  std::vector<Share> shares;
  std::vector<Peer> peers;
};

// What `times`, means of a call in microseconds, say of the point; no shares and no neighbours yet.
Row row_of(const Workload& workload, const Point& point, const std::vector<double>& times);

// On the CPU. Empty where Ctrl-C came between two samples.
std::optional<Row> time_row(const Runtime& runtime, const WorkloadOptions& workload, const Point& point, Arena& arena,
                            const TimingOptions& options);

}  // namespace anyattn::tools::bench
