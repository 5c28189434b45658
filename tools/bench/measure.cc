// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <benchmark/benchmark.h>

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

}  // namespace

double nanoseconds(const std::string& name, double min_time_s, const std::function<void()>& body) {
  std::exception_ptr thrown;
  benchmark::RegisterBenchmark(name.c_str(),
                               [&](benchmark::State& state) {
                                 try {
                                   for (auto _ : state) body();
                                 } catch (...) {
                                   thrown = std::current_exception();
                                   state.SkipWithError("stopped");
                                 }
                               })
      ->Unit(benchmark::kNanosecond)
      ->UseRealTime()
      ->MinTime(min_time_s);
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();
  if (thrown) std::rethrow_exception(thrown);
  return collector.nanoseconds();
}

}  // namespace anyattn::tools::bench
