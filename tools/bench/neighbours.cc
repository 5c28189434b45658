// SPDX-License-Identifier: Apache-2.0
#include "bench/neighbours.h"

#include <sys/times.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace anyattn::tools::bench {

Neighbours::Neighbours() : start_(now()) {}

Neighbours::Ticks Neighbours::now() {
  // "cpu user nice system idle iowait irq softirq steal ...": guest time is part of user time.
  constexpr int kColumns = 8, kIdle = 3, kWaiting = 4;
  Ticks ticks;
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  for (int column = 0; column < kColumns; ++column) {
    uint64_t value = 0;
    if (!(file >> value)) return {};
    ticks.all += value;
    if (column != kIdle && column != kWaiting) ticks.busy += value;
  }
  tms own{};
  times(&own);
  ticks.own = static_cast<uint64_t>(own.tms_utime + own.tms_stime);
  return ticks;
}

double Neighbours::share() const {
  const Ticks end = now();
  if (end.all <= start_.all) return 0;
  const uint64_t busy = end.busy - start_.busy, own = std::min(end.own - start_.own, busy);
  return static_cast<double>(busy - own) / static_cast<double>(end.all - start_.all);
}

}  // namespace anyattn::tools::bench
