// SPDX-License-Identifier: Apache-2.0
// One measurement by Google Benchmark. Included by what times rows and the runtime's own cost.
#pragma once

#include <cstdint>
#include <functional>

namespace anyattn::tools::bench {

// Mean nanoseconds of a call of `body` over exactly `calls` of them. What `body` throws comes out. One caller at a time.
double nanoseconds(uint64_t calls, const std::function<void()>& body);

// How many calls last min_time_s: at least 1. Calls it as often.
uint64_t calls_for(double min_time_s, const std::function<void()>& body);

}  // namespace anyattn::tools::bench
