// SPDX-License-Identifier: Apache-2.0
// Rows of the grid on a device other than the CPU: calls as replays of a captured graph, timed by the device's events, against
// what copies inside its memory reach. Included by bench and tune.
#pragma once

#include <functional>
#include <optional>

#include "anyattn/streams.hpp"
#include "bench/timing.h"

namespace anyattn::tools::bench {

// Bytes that copies inside the device's memory read and write a second: the limit that a provider can measure.
class DeviceCopies {
 public:
  DeviceCopies(const Runtime& runtime, Device device);
  double gb_per_s();  // one sample

 private:
  const Runtime& runtime_;
  Device device_;
  DeviceStream stream_;
  DeviceMemory from_, to_;
  DeviceEvent begin_, end_;
};

// A sample of the workload's call at each call of it: mean microseconds over at least min_time_s. Borrows both; one at a time.
std::function<double()> device_sampler(const Runtime& runtime, Workload& workload, double min_time_s);

// Empty where Ctrl-C came between two samples. `copies` gives a sample of the limit beside each of the row.
std::optional<Row> time_device_row(const Runtime& runtime, const WorkloadOptions& workload, const Point& point, Arena& arena,
                                   DeviceCopies& copies, const TimingOptions& options);

}  // namespace anyattn::tools::bench
