// SPDX-License-Identifier: Apache-2.0
#include "serving/attention_timer.h"

#include <algorithm>

namespace anyattn::tools {

void AttentionTimer::begin() {
  const auto before = Clock::now();
  place_.synchronize();
  from_ = Clock::now();
  copying_seconds_ += std::chrono::duration<double>(from_ - before).count();
  num_marked_ = 0;
  events_[0].record(place_.stream);
}

void AttentionTimer::mark(Spent where) {
  marked_[num_marked_++] = where;
  events_[num_marked_].record(place_.stream);
}

void AttentionTimer::end() {
  place_.synchronize();
  double rest = std::chrono::duration<double>(Clock::now() - from_).count();
  for (size_t i = 0; i < num_marked_; ++i) {
    // An event's clock ticks in steps, so a call can seem longer than the wait for it.
    const double part = std::min(rest, events_[i + 1].milliseconds_since(events_[i]) / 1e3);
    seconds_[static_cast<size_t>(marked_[i])] += part;
    rest -= part;
  }
  seconds_[static_cast<size_t>(Spent::kWaits)] += rest;
}

}  // namespace anyattn::tools
