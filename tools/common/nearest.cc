// SPDX-License-Identifier: Apache-2.0
#include "common/nearest.h"

#include <algorithm>

namespace anyattn::tools {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the optimal string alignment table: two back (for swaps), one back, current.
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = previous[j - 1] + (a[i - 1] != b[j - 1]);
      current[j] = std::min({replace, previous[j] + 1, current[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  int best = std::max<int>(2, static_cast<int>(word.size()) / 3) + 1;
  std::string found;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance < best && distance < static_cast<int>(candidate.size())) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace anyattn::tools
