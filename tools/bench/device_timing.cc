// SPDX-License-Identifier: Apache-2.0
#include "bench/device_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/interrupt.h"
#include "common/runtime.h"

namespace anyattn::tools::bench {
namespace {

constexpr uint64_t kMostCopied = uint64_t{512} << 20;
constexpr uint32_t kCopies = 4;          // a sample
constexpr uint32_t kDeviceToDevice = 3;  // ANYATTN_COPY_* of device.h
constexpr uint32_t kMostCallsAGraph = 512;
constexpr uint32_t kHostCalls = 64;  // queued without waiting: a stream's queue holds about a thousand launches

// The calls of one workload over all its caches, again and again.
class Calls {
 public:
  Calls(const Runtime& runtime, Workload& workload)
      : workload_(workload),
        count_(std::clamp(workload.num_caches(), kFewestCalls, kMostCallsAGraph)),
        begin_(runtime, workload.device()),
        end_(runtime, workload.device()) {
    if (workload.captures()) graph_ = DeviceGraph(runtime, workload.device(), workload.stream(), [&] { queue_each(); });
    seconds_ = sample_seconds(1);  // the first time is no sample
  }

  bool replays() const { return graph_.get() != nullptr; }
  // Mean microseconds of a call over at least min_time_s.
  double microseconds(double min_time_s) {
    const auto times = static_cast<uint32_t>(std::max(1.0, std::ceil(min_time_s / std::max(seconds_, 1e-7))));
    seconds_ = sample_seconds(times) / times;
    return seconds_ * 1e6 / count_;
  }

 private:
  static constexpr uint32_t kFewestCalls = 16;

  void queue_each() {
    for (uint32_t i = 0; i < count_; ++i) workload_.queue();
  }
  double sample_seconds(uint32_t times) {
    begin_.record(workload_.stream());
    for (uint32_t i = 0; i < times; ++i) {
      if (replays()) {
        graph_.launch(workload_.stream());
      } else {
        queue_each();
      }
    }
    end_.record(workload_.stream());
    return end_.milliseconds_since(begin_) / 1e3;
  }

  Workload& workload_;
  uint32_t count_;  // of calls, one a cache
  DeviceEvent begin_, end_;
  DeviceGraph graph_;
  double seconds_ = 0;  // of all once
};

// 512 MiB, or a 64th of a small device's memory.
uint64_t copied_bytes(const Runtime& runtime, Device device) {
  const auto listing = parse(runtime.devices());
  for (const auto& facts : listing.at("devices")) {
    if (facts.at("ordinal") == device.ordinal && !facts.at("has_host_memory").get<bool>())
      return std::min(kMostCopied, facts.at("memory_bytes").get<uint64_t>() / 64 / 256 * 256);
  }
  return kMostCopied;
}

// What the host spends to queue one call through the runtime, in microseconds.
double host_microseconds(const Runtime& runtime, Workload& workload) {
  runtime.synchronize(workload.device(), workload.stream());
  const auto from = std::chrono::steady_clock::now();
  for (uint32_t i = 0; i < kHostCalls; ++i) workload.queue();
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - from;
  runtime.synchronize(workload.device(), workload.stream());
  return spent.count() / kHostCalls;
}

}  // namespace

DeviceCopies::DeviceCopies(const Runtime& runtime, Device device)
    : runtime_(runtime),
      device_(device),
      stream_(runtime, device),
      from_(runtime, device, copied_bytes(runtime, device)),
      to_(runtime, device, from_.bytes()),
      begin_(runtime, device),
      end_(runtime, device) {
  // Pages that were never written may all be one.
  for (const DeviceMemory* memory : {&from_, &to_})
    check(anyattn_device_fill, runtime.get(), device.kind, device.ordinal, memory->get(), uint8_t{1}, memory->bytes(),
          stream_.get());
  gb_per_s();
}

double DeviceCopies::gb_per_s() {
  begin_.record(stream_.get());
  for (uint32_t i = 0; i < kCopies; ++i)
    runtime_.copy(device_, to_.get(), from_.get(), from_.bytes(), kDeviceToDevice, stream_.get());
  end_.record(stream_.get());
  return 2.0 * kCopies * static_cast<double>(from_.bytes()) / end_.milliseconds_since(begin_) / 1e6;
}

std::function<double()> device_sampler(const Runtime& runtime, Workload& workload, double min_time_s) {
  return [calls = std::make_shared<Calls>(runtime, workload), min_time_s] { return calls->microseconds(min_time_s); };
}

std::optional<Row> time_device_row(const Runtime& runtime, const WorkloadOptions& workload_options, const Point& point,
                                   Arena& arena, DeviceCopies& copies, const TimingOptions& options) {
  Workload workload(runtime, workload_options, point, arena);
  workload.update();
  Calls calls(runtime, workload);
  const bool reads = point.query_len < point.seq_len;
  const double bytes = point.visible_keys() * workload.bytes_a_key();
  std::vector<double> times, host, rates, shares;
  for (uint32_t pair = 0; pair < options.pairs; ++pair) {
    if (interrupted()) return std::nullopt;
    const double rate = reads ? copies.gb_per_s() : 0;
    times.push_back(calls.microseconds(options.min_time_s));
    host.push_back(host_microseconds(runtime, workload));
    if (!reads) continue;
    rates.push_back(rate);
    shares.push_back(bytes / times.back() / 1e3 / rate);
  }
  Row row = row_of(workload, point, times);
  row.timed_by = calls.replays() ? "graph replays" : "calls";
  row.host_us = median(host);
  if (reads) row.shares.push_back({"device_copy", median(rates), median(shares)});
  return row;
}

}  // namespace anyattn::tools::bench
