// SPDX-License-Identifier: Apache-2.0
// The known name nearest to a mistyped one. Included by every part of core/config that refuses a name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace anyattn::config {

// Letters to insert, drop, replace or swap with a neighbour to turn a into b.
size_t edit_distance(std::string_view a, std::string_view b);

// Lower case, hyphens and blanks inside as underscores, blanks around dropped: "KV-Cache-dtype " -> "kv_cache_dtype".
std::string normalised(std::string_view name);

// The candidate equal after normalising, else the nearest one within a third of the name's length (at least one letter); "" if none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace anyattn::config
