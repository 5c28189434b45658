// SPDX-License-Identifier: Apache-2.0
// The two products of an attention call as plain matrix products, for programs that time a library with them: no softmax, no mask,
// so an attention call that is as fast does more. Included by each peer's one file, which defines `products`.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace anyattn::tools::peers {

// scores[b] = q[b] k[b]^T and out[b] = p[b] v[b] for `batch` pairs (request, kv head); rows = query rows x heads of the group.
struct Shape {
  int64_t batch, rows, keys, size, size_v;
  bool bf16;  // else float32; sums are float32
};

struct Products {
  std::function<void()> scores, values;
};

// Ready to be called again and again; empty where the library cannot.
Products products(const Shape& shape);

inline double median_us(const std::function<void()>& body, int samples, double min_time_s) {
  const auto seconds = [&](int64_t calls) {
    const auto from = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  body();
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(min_time_s / std::max(seconds(1), 1e-7)));
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) times.push_back(1e6 * seconds(calls) / static_cast<double>(calls));
  std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
  return times[static_cast<size_t>(samples / 2)];
}

// BATCH ROWS KEYS SIZE SIZE_V float32|bfloat16 SAMPLES MIN_TIME -> "scores_us values_us" on standard output; 3: cannot.
inline int run(int argc, char** argv) {
  if (argc != 9) {
    std::fprintf(stderr, "%s: BATCH ROWS KEYS SIZE SIZE_V float32|bfloat16 SAMPLES MIN_TIME\n", argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  const Products both =
      products({number(1), number(2), number(3), number(4), number(5), std::strcmp(argv[6], "bfloat16") == 0});
  if (!both.scores) return 3;
  const int samples = static_cast<int>(number(7));
  const double min_time_s = std::strtod(argv[8], nullptr);
  std::printf("%.3f %.3f\n", median_us(both.scores, samples, min_time_s), median_us(both.values, samples, min_time_s));
  return 0;
}

}  // namespace anyattn::tools::peers
