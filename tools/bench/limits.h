// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, on the runtime's own threads: bytes read and operations done a second.
// Included by the timing of rows, which takes one sample beside each of its own. CPU memory only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "anyattn/runtime.hpp"
#include "bench/peaks.h"

namespace anyattn::tools::bench {

// One sample each, every worker of `runtime` at work; GB/s and GFLOP/s.
double read_rate(const Runtime& runtime, const char* memory, size_t bytes);
double read_rate_of_streams(const Runtime& runtime, const char* memory, size_t bytes);
// Each worker reads its own part of `bytes` again and again, until 8 MiB a worker are read: what stays in its caches.
double cached_read_rate(const Runtime& runtime, const char* memory, size_t bytes);
double peak_rate(const Runtime& runtime, Peak peak);

struct Limit {
  std::string name;  // dram_read, dram_read_8_streams, read_1_mib, ..., f32_fma, bf16_dot, bf16_amx
  std::string unit;  // GB/s, GFLOP/s
  uint32_t threads;
  double rate;  // median of the samples
};

// Every limit over `memory`, which is far larger than the caches.
std::vector<Limit> measure_limits(const Runtime& runtime, std::span<const char> memory, uint32_t samples);

double median(std::vector<double> values);  // of one value or more

}  // namespace anyattn::tools::bench
