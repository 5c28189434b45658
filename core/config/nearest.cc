// SPDX-License-Identifier: Apache-2.0
#include "config/nearest.h"

#include <algorithm>
#include <utility>

namespace anyattn::config {
namespace {

// Longer names are no typing mistakes, and the table below grows with the square.
constexpr size_t kLongest = 100;

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kLongest || b.size() > kLongest) return std::max(a.size(), b.size());
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string normalised(std::string_view name) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const size_t begin = name.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  name = name.substr(begin, name.find_last_not_of(kBlanks) - begin + 1);
  std::string out(name);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == ' ' || c == '\t') c = '_';
  }
  return out;
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string wanted = normalised(name);
  std::string best;
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string known = normalised(candidate);
    if (known == wanted) return candidate;
    const size_t distance = edit_distance(wanted, known);
    // A distance as long as the known name itself shares nothing with it.
    if (distance < best_distance && distance < known.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace anyattn::config
