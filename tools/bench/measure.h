// SPDX-License-Identifier: Apache-2.0
// One measurement by Google Benchmark. Included by bench.cc, which alone decides what is measured.
#pragma once

#include <functional>
#include <string>

namespace anyattn::tools::bench {

// Mean nanoseconds of a call of `body`, repeated for at least min_time_s. What `body` throws comes out.
double nanoseconds(const std::string& name, double min_time_s, const std::function<void()>& body);

}  // namespace anyattn::tools::bench
