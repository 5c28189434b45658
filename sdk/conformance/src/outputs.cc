// SPDX-License-Identifier: Apache-2.0
#include "outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "failure.h"

namespace anyattn::conformance {
namespace {

double per_natural(uint32_t base) { return base == ANYATTN_LSE_BASE2 ? std::numbers::log2e : 1.0; }

std::vector<double> scaled(const std::vector<double>& values, double factor) {
  std::vector<double> result(values);
  for (double& value : result) value *= factor;
  return result;
}

// What the figures are multiples of, read where they are largest; 0 where none is large enough to tell.
double over_natural(const std::vector<float>& got, const std::vector<double>& natural) {
  double largest = 0.5, ratio = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(natural[i]) || !std::isfinite(got[i]) || std::fabs(natural[i]) <= largest) continue;
    largest = std::fabs(natural[i]);
    ratio = static_cast<double>(got[i]) / natural[i];
  }
  return ratio;
}

// Are the figures those of the other base?
std::string other_base(const Outputs& got, const Reference& reference, uint32_t base, double bound) {
  const uint32_t other = base == ANYATTN_LSE_BASE2 ? ANYATTN_LSE_NATURAL : ANYATTN_LSE_BASE2;
  const double factor = per_natural(other);
  if (!compare(got.lse, scaled(reference.exact_lse, factor), bound * factor, "lse").ok()) return {};
  return base == ANYATTN_LSE_NATURAL ? "; the figures are in base 2 (1.442695 times the natural ones), which was not asked for"
                                     : "; the figures are natural logarithms, base 2 was asked for";
}

}  // namespace

void judge(const Outputs& got, const Reference& reference, uint32_t lse_base, uint32_t out_dtype, const std::string& who,
           CaseResult* result) {
  const Bound bound = bound_of(reference, out_dtype);
  const Comparison out = compare(got.out, reference.exact, bound.out, "out");
  result->ratio_out = std::max(result->ratio_out, out.ratio);
  result->max_score = std::max(result->max_score, reference.max_score);
  Comparison lse;
  if (const double ratio = over_natural(got.lse, reference.exact_lse); ratio != 0) result->lse_over_natural = ratio;
  const double factor = per_natural(lse_base);
  if (!got.lse.empty()) {
    lse = compare(got.lse, scaled(reference.exact_lse, factor), bound.lse * factor, "lse");
    result->ratio_lse = std::max(result->ratio_lse, lse.ratio);
  }
  if (!out.ok()) throw Failure(who + out.failure);
  if (!lse.ok()) throw Failure(who + lse.failure + other_base(got, reference, lse_base, bound.lse));
}

void want_same_bits(const Outputs& got, size_t first, const Outputs& other, size_t other_first, size_t count, size_t out_row,
                    size_t lse_row, const std::string& who) {
  const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, size_t row, const char* what) {
    if (a.empty() || b.empty()) return;
    for (size_t i = 0; i < count * row; ++i) {
      const float left = a[first * row + i], right = b[other_first * row + i];
      if (std::memcmp(&left, &right, sizeof left) == 0) continue;
      throw Failure(who + text(": %s of row %zu differs: %.9g against %.9g (bitwise equality is wanted)", what, first + i / row,
                               static_cast<double>(left), static_cast<double>(right)));
    }
  };
  same(got.out, other.out, out_row, "out");
  same(got.lse, other.lse, lse_row, "lse");
}

void want_figures(const Outputs& got, const std::vector<double>& golden, uint32_t lse_base) {
  const std::vector<double> out(got.out.begin(), got.out.end());
  std::vector<double> lse(got.lse.begin(), got.lse.end());
  for (double& value : lse) value /= per_natural(lse_base);
  const Figures figures = figures_of(out, lse);
  const double allowed = 1e-5 * golden[1] + 1e-6;
  const auto want = [](double value, double right, double most, const char* what) {
    if (std::isnan(right)) return;  // the recipe names no figure
    if (!(std::fabs(value - right) <= most)) throw Failure(text("golden figure %s is %.9f; right is %.9f", what, value, right));
  };
  want(figures.sum, golden[0], allowed, "S");
  want(figures.weighted, golden[2], allowed, "Wt");
  if (!lse.empty()) want(figures.sum_of_lse, golden[3], 1e-4 * golden[4], "Ls");
}

}  // namespace anyattn::conformance
