// SPDX-License-Identifier: Apache-2.0
// What a step's time in calls of the runtime goes to. Included by the layers and run, which ask it.
// Measures with the device idle on both sides: what the run itself copied before, made-up inputs, is no call's time.
#pragma once

#include <array>
#include <chrono>
#include <utility>

#include "anyattn/streams.hpp"
#include "serving/device_buffer.h"

namespace anyattn::tools {

// The first three are the device's time between events around a call; the host's launch of a call's first kernel lies in it.
// kWaits: what the caller waited beyond that, which is the host's way to the device and back.
enum class Spent { kMetadata, kCacheUpdate, kKernels, kWaits };

class AttentionTimer {
 public:
  explicit AttentionTimer(const Place& place) : place_(place), events_{event_of(place), event_of(place), event_of(place)} {}

  template <class Body>
  void measure(Spent where, Body&& body) {
    begin();
    body();
    mark(where);
    end();
  }
  // Two calls queued one behind the other, waited for once.
  template <class First, class Second>
  void measure(Spent first, First&& body, Spent second, Second&& next) {
    begin();
    body();
    mark(first);
    next();
    mark(second);
    end();
  }

  double seconds(Spent where) const { return seconds_[static_cast<size_t>(where)]; }
  double seconds() const {
    double all = 0;
    for (const double part : seconds_) all += part;
    return all;
  }
  // Waited for what stood on the stream before a call, which is no part of seconds().
  double copying_seconds() const { return copying_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  static DeviceEvent event_of(const Place& place) { return {*place.runtime, place.device}; }
  void begin();
  void mark(Spent where);
  void end();

  const Place& place_;
  std::array<DeviceEvent, 3> events_;
  std::array<Spent, 2> marked_{};
  size_t num_marked_ = 0;
  Clock::time_point from_;
  std::array<double, 4> seconds_{};
  double copying_seconds_ = 0;
};

}  // namespace anyattn::tools
