// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

namespace anyattn::tools::bench {
namespace {

// Work is dealt finer than workers, so that one who comes late costs little.
constexpr uint64_t kPartsAWorker = 8;
constexpr size_t kPage = 4096;
constexpr size_t kCachedBytes = size_t{8} << 20;

template <class Body>
double seconds(const Body& body) {
  const auto from = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

// Bytes a second of `read` over page-aligned parts of the memory.
double rate_of(const Runtime& runtime, const char* memory, size_t bytes, void (*read)(const char*, size_t)) {
  const uint64_t parts = runtime.num_workers() == 1 ? 1 : runtime.num_workers() * kPartsAWorker;
  const size_t part = std::max(kPage, bytes / parts / kPage * kPage);
  const uint64_t count = std::max<uint64_t>(1, bytes / part);
  const double time = seconds([&] {
    runtime.parallel_for(count, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t i = begin; i < end; ++i) read(memory + i * part, std::min(part, bytes));
    });
  });
  return static_cast<double>(count * std::min(part, bytes)) / time / 1e9;
}

Limit sampled(const Runtime& runtime, const char* name, const char* unit, uint32_t samples,
              const std::function<double()>& sample) {
  std::vector<double> rates;
  sample();
  for (uint32_t i = 0; i < samples; ++i) rates.push_back(sample());
  return {name, unit, runtime.num_workers(), median(std::move(rates))};
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double read_rate(const Runtime& runtime, const char* memory, size_t bytes) {
  return rate_of(runtime, memory, bytes, read_in_order);
}

double read_rate_of_streams(const Runtime& runtime, const char* memory, size_t bytes) {
  return rate_of(runtime, memory, bytes, read_as_streams);
}

double cached_read_rate(const Runtime& runtime, const char* memory, size_t bytes) {
  const uint64_t workers = runtime.num_workers();
  // Small ones are shared.
  const bool dealt = bytes / workers >= kPage;
  const size_t part = dealt ? bytes / workers / kPage * kPage : bytes;
  const size_t times = std::max<size_t>(1, kCachedBytes / part);
  const double time = seconds([&] {
    runtime.parallel_for(workers, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t i = begin; i < end; ++i) {
        for (size_t repeat = 0; repeat < times; ++repeat) read_in_order(memory + (dealt ? i * part : 0), part);
      }
    });
  });
  return static_cast<double>(workers * times * part) / time / 1e9;
}

double peak_rate(const Runtime& runtime, Peak peak) {
  const uint64_t workers = runtime.num_workers();
  std::vector<double> flops(workers);
  const double time = seconds([&] {
    runtime.parallel_for(workers, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t i = begin; i < end; ++i) flops[i] = run_peak(peak);
    });
  });
  double all = 0;
  for (const double own : flops) all += own;
  return all / time / 1e9;
}

std::vector<Limit> measure_limits(const Runtime& runtime, std::span<const char> memory, uint32_t samples) {
  const size_t slice = memory.size() / (samples + 1) / kPage * kPage;
  std::vector<Limit> limits;
  size_t at = 0;
  // Slice after slice: none is met again before all others were.
  const auto next_slice = [&] {
    const char* start = memory.data() + at;
    at = at + 2 * slice > memory.size() ? 0 : at + slice;
    return start;
  };
  if (slice > 0) {
    limits.push_back(sampled(runtime, "dram_read", "GB/s", samples, [&] { return read_rate(runtime, next_slice(), slice); }));
    limits.push_back(sampled(runtime, "dram_read_8_streams", "GB/s", samples,
                             [&] { return read_rate_of_streams(runtime, next_slice(), slice); }));
  }
  const std::pair<const char*, size_t> sizes[] = {
      {"read_256_kib", 256u << 10}, {"read_1_mib", 1u << 20}, {"read_4_mib", 4u << 20}, {"read_16_mib", 16u << 20}};
  for (const auto& [name, bytes] : sizes) {
    if (bytes * runtime.num_workers() > memory.size()) continue;
    limits.push_back(sampled(runtime, name, "GB/s", samples, [&, size = bytes] {
      return cached_read_rate(runtime, memory.data(), size * runtime.num_workers());
    }));
  }
  for (const Peak peak : kPeaks) {
    if (!has_peak(peak)) continue;
    limits.push_back(sampled(runtime, peak_name(peak), "GFLOP/s", samples, [&] { return peak_rate(runtime, peak); }));
  }
  return limits;
}

}  // namespace anyattn::tools::bench
