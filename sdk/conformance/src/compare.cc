// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "anyattn/conformance/reference.h"

namespace anyattn::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double error_of(double got, double exact) {
  if (std::isfinite(got) && std::isfinite(exact)) return std::fabs(got - exact);
  const bool same = std::isnan(exact) ? std::isnan(got) : got == exact;
  return same ? 0.0 : kInfinity;
}

double worst_of(std::span<const double> naive, std::span<const double> exact) {
  double worst = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::isfinite(naive[i]) && std::isfinite(exact[i])) worst = std::max(worst, std::fabs(naive[i] - exact[i]));
  }
  return worst;
}

double largest_of(std::span<const double> values) {
  double largest = 0.0;
  for (double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

}  // namespace

Bound bound_of(const Reference& reference, uint32_t out_dtype) {
  const double u_acc = unit_roundoff(ANYATTN_DTYPE_FLOAT32);
  const double u_out = unit_roundoff(out_dtype);
  Bound bound;
  bound.out = 2.0 * worst_of(reference.naive, reference.exact) + u_acc * (1.0 + reference.max_score) * reference.max_value +
              u_out * largest_of(reference.exact);
  bound.lse = 2.0 * worst_of(reference.naive_lse, reference.exact_lse) +
              u_acc * (1.0 + reference.max_score + largest_of(reference.exact_lse));
  return bound;
}

Comparison compare(std::span<const float> got, std::span<const double> exact, double bound, const char* what) {
  Comparison result;
  char text[200];
  if (got.size() != exact.size()) {
    std::snprintf(text, sizeof text, "%s has %zu values; %zu are expected", what, got.size(), exact.size());
    result.failure = text;
    return result;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = error_of(got[i], exact[i]);
    if (error > result.worst_error) {
      result.worst_error = error;
      result.worst_index = i;
    }
  }
  if (result.worst_error > 0.0) result.ratio = bound > 0.0 ? result.worst_error / bound : kInfinity;
  if (result.ratio > 1.0) {
    const size_t at = result.worst_index;
    std::snprintf(text, sizeof text, "%s[%zu] is %.9g; exact is %.9g, allowed error %.3g (error / bound = %.3g)", what, at,
                  static_cast<double>(got[at]), exact[at], bound, result.ratio);
    result.failure = text;
  }
  return result;
}

}  // namespace anyattn::conformance
