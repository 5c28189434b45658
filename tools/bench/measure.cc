// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <exception>

namespace anyattn::tools::bench {
namespace {

// Keeps the mean and prints nothing: tables are the verb's own.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) nanoseconds_ = run.GetAdjustedRealTime();
  }
  double nanoseconds() const { return nanoseconds_; }

 private:
  double nanoseconds_ = 0;
};

// What is measured now; the one registered benchmark calls it.
const std::function<void()>* measured = nullptr;
std::exception_ptr thrown;

void call_measured(benchmark::State& state) {
  try {
    while (state.KeepRunning()) (*measured)();
  } catch (...) {
    thrown = std::current_exception();
    state.SkipWithError("stopped");
  }
}
benchmark::internal::Benchmark* const kBenchmark =
    benchmark::RegisterBenchmark("call", call_measured)->Unit(benchmark::kNanosecond)->UseRealTime();

}  // namespace

double nanoseconds(uint64_t calls, const std::function<void()>& body) {
  measured = &body;
  thrown = nullptr;
  kBenchmark->Iterations(static_cast<benchmark::IterationCount>(calls));
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  if (thrown) std::rethrow_exception(thrown);
  return collector.nanoseconds();
}

uint64_t calls_for(double min_time_s, const std::function<void()>& body) {
  for (uint64_t calls = 1;;) {
    const double seconds = nanoseconds(calls, body) * static_cast<double>(calls) / 1e9;
    if (seconds >= min_time_s) return calls;
    // Twice as many at least, a thousand times as many at most: short times say little.
    const double wanted = 1.2 * static_cast<double>(calls) * min_time_s / std::max(seconds, 1e-9);
    calls = static_cast<uint64_t>(std::clamp(wanted, 2.0 * static_cast<double>(calls), 1e3 * static_cast<double>(calls)));
  }
}

}  // namespace anyattn::tools::bench
