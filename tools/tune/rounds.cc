// SPDX-License-Identifier: Apache-2.0
#include "tune/rounds.h"

#include <functional>
#include <memory>

#include "bench/device_timing.h"
#include "bench/measure.h"
#include "common/interrupt.h"

namespace anyattn::tools {
namespace {

struct Contender {
  std::string backend;
  std::unique_ptr<bench::Workload> workload;
  std::function<double()> sample;  // mean microseconds of a call
};

std::function<double()> sampler(const Runtime& runtime, bench::Workload& workload, double min_time_s) {
  if (!workload.on_cpu()) return bench::device_sampler(runtime, workload, min_time_s);
  const auto call = [&workload] { workload.forward(); };
  return [call, calls = bench::calls_for(min_time_s, call)] { return bench::nanoseconds(calls, call) / 1e3; };
}

bool is_of_the_machine(const RuntimeError& error) {
  return error.status() == ANYATTN_UNSUPPORTED || error.status() == ANYATTN_MEMORY_NOT_NOW ||
         error.status() == ANYATTN_OUT_OF_MEMORY;
}

}  // namespace

Rounds::Answer Rounds::measure(const std::string& device, const bench::Point& point, const std::vector<std::string>& backends) {
  Answer answer;
  std::vector<Contender> contenders;
  for (const std::string& backend : backends) {
    if (interrupted()) break;
    try {
      Contender one{backend, nullptr, {}};
      const bench::WorkloadOptions workload{device, backend, options_.cold_bytes};
      one.workload = std::make_unique<bench::Workload>(runtime_, workload, point, arenas_[backend]);
      one.workload->update();
      one.sample = sampler(runtime_, *one.workload, options_.min_time_s);
      contenders.push_back(std::move(one));
    } catch (const RuntimeError& error) {
      if (!is_of_the_machine(error)) throw;
      answer.failed.emplace(backend, error.what());
    }
  }
  for (uint32_t round = 0; round < options_.rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (interrupted()) {
        answer.complete = false;
        return answer;
      }
      const Contender& one = contenders[(round + i) % contenders.size()];
      answer.times[one.backend].push_back(one.sample());
    }
  }
  answer.complete = !interrupted();
  return answer;
}

}  // namespace anyattn::tools
