// SPDX-License-Identifier: Apache-2.0
#include "bench/timing.h"

#include <algorithm>
#include <map>

#include "bench/measure.h"
#include "bench/neighbours.h"
#include "common/interrupt.h"

namespace anyattn::tools::bench {
namespace {

// What bounds products of these types: the issue of the processor's units for them.
std::vector<Peak> peaks_of(const Point& point, const anyattn_group_info& info) {
  std::vector<Peak> peaks{Peak::kF32Fma};
  const bool bf16 = point.problem.fields.q_dtype == ANYATTN_DTYPE_BFLOAT16 && std::string("bfloat16") == info.kv_cache_dtype;
  if (bf16 && has_peak(Peak::kBf16Dot)) peaks.push_back(Peak::kBf16Dot);
  if (bf16 && has_peak(Peak::kBf16Amx)) peaks.push_back(Peak::kBf16Amx);
  return peaks;
}

// Samples of one pair of one limit.
struct Samples {
  std::vector<double> rates, shares;
  void add(double rate, double reached) {
    rates.push_back(rate);
    shares.push_back(reached / rate);
  }
};

}  // namespace

Row row_of(const Workload& workload, const Point& point, const std::vector<double>& times) {
  const anyattn_group_info& info = workload.info();
  Row row;
  row.point = point;
  row.backend = point.query_len <= info.decode_threshold ? info.decode_backend : info.backend;
  row.plugin = info.plugin;
  row.kv_cache_dtype = info.kv_cache_dtype;
  row.layout = info.spec->name;
  row.block_size = info.block_size;
  row.bytes_a_key = workload.bytes_a_key();
  row.forward_us = median(times);
  row.fastest_us = *std::min_element(times.begin(), times.end());
  row.slowest_us = *std::max_element(times.begin(), times.end());
  row.gb_per_s = point.visible_keys() * row.bytes_a_key / row.forward_us / 1e3;
  row.gflop_per_s = point.flops() / row.forward_us / 1e3;
  row.ns_a_key = row.forward_us * 1e3 / point.visible_keys();
  return row;
}

std::optional<Row> time_row(const Runtime& runtime, const WorkloadOptions& workload_options, const Point& point, Arena& arena,
                            const TimingOptions& options) {
  Workload workload(runtime, workload_options, point, arena);
  const anyattn_group_info& info = workload.info();
  const double bytes = point.visible_keys() * workload.bytes_a_key(), flops = point.flops();
  const auto call = [&] { workload.forward(); };
  workload.update();
  const uint64_t calls = calls_for(options.min_time_s, call);
  const bool reads = point.query_len < point.seq_len;
  const std::vector<Peak> peaks = peaks_of(point, info);

  const Neighbours neighbours;
  std::vector<double> times;
  std::map<std::string, Samples> limits;
  for (uint32_t pair = 0; pair < options.pairs; ++pair) {
    if (interrupted()) return std::nullopt;
    // Both walk over the caches behind one another, so that neither meets what the other has just read.
    const auto [memory, size] = workload.take_caches(calls);
    double read = 0;
    if (reads) read = point.cold ? read_rate(runtime, memory, size) : cached_read_rate(runtime, memory, size);
    const double ns = nanoseconds(calls, call);
    times.push_back(ns / 1e3);
    if (reads) limits[point.cold ? "dram_read" : "cached_read"].add(read, bytes / ns);
    for (const Peak peak : peaks) limits[peak_name(peak)].add(peak_rate(runtime, peak), flops / ns);
  }

  Row row = row_of(workload, point, times);
  row.threads = runtime.num_workers();
  row.others = neighbours.share();
  for (const auto& [name, samples] : limits) row.shares.push_back({name, median(samples.rates), median(samples.shares)});
  return row;
}

}  // namespace anyattn::tools::bench
