// SPDX-License-Identifier: Apache-2.0
// One measurement by Google Benchmark. Included by bench.cc, which alone decides what is measured.
#pragma once

#include <functional>

namespace anyattn::tools::bench {

// Mean nanoseconds of a call of `body`, repeated for at least min_time_s. What `body` throws comes out. One caller at a time.
double nanoseconds(double min_time_s, const std::function<void()>& body);

}  // namespace anyattn::tools::bench
