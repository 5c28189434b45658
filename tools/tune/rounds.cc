// SPDX-License-Identifier: Apache-2.0
#include "tune/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/device_timing.h"
#include "bench/limits.h"
#include "bench/measure.h"
#include "common/interrupt.h"

namespace anyattn::tools {
namespace {

struct Ready {
  std::string name;
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

Rounds::Answer Rounds::measure(const std::string& device, const bench::Point& point, const std::vector<Contender>& contenders) {
  Answer answer;
  std::vector<Ready> all;
  for (const Contender& contender : contenders) {
    if (interrupted()) break;
    try {
      Ready one{contender.name, nullptr, {}};
      const bench::WorkloadOptions workload{device, contender.backend, options_.cold_bytes};
      one.workload = std::make_unique<bench::Workload>(*contender.runtime, workload, point, arenas_[contender.backend]);
      one.workload->update();
      one.sample = sampler(*contender.runtime, *one.workload, options_.min_time_s);
      all.push_back(std::move(one));
    } catch (const RuntimeError& error) {
      if (!is_of_the_machine(error)) throw;
      answer.failed.emplace(contender.name, error.what());
    }
  }
  for (uint32_t round = 0; round < options_.rounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (interrupted()) {
        answer.complete = false;
        return answer;
      }
      const Ready& one = all[(round + i) % all.size()];
      answer.times[one.name].push_back(one.sample());
    }
  }
  answer.complete = !interrupted();
  return answer;
}

nlohmann::ordered_json figures_of(std::vector<double> rounds) {
  // To a nanosecond: more digits would be noise. Never 0, which no call takes.
  const auto rounded = [](double microseconds) { return std::max(0.001, std::round(microseconds * 1e3) / 1e3); };
  std::ranges::sort(rounds);
  return {{"fastest_us", rounded(rounds.front())},
          {"median_us", rounded(bench::median(rounds))},
          {"slowest_us", rounded(rounds.back())}};
}

std::string gain_text(const nlohmann::ordered_json& one, const nlohmann::ordered_json& first) {
  const auto us = [](const nlohmann::ordered_json& times, const char* key) { return times.at(key).get<double>(); };
  const char* rounds = us(one, "slowest_us") < us(first, "fastest_us")   ? "faster in every round"
                       : us(first, "slowest_us") < us(one, "fastest_us") ? "slower in every round"
                                                                         : "rounds overlap";
  return fmt::format("{:.2f}x, {}", us(first, "median_us") / us(one, "median_us"), rounds);
}

}  // namespace anyattn::tools
