// SPDX-License-Identifier: Apache-2.0
// The known word closest to a mistyped one. Included where the command line is refused.
// Knows nothing of verbs, flags or backends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyattn::tools {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The word of `known` with the smallest distance, first in order on a tie; empty where none is close: more than a third of the
// word's letters (at least two) would change.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace anyattn::tools
