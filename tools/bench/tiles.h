// SPDX-License-Identifier: Apache-2.0
// bench --tiles: a backend's other cuts of each problem measured against the one that it chooses. Included by bench.
// A plugin has such cuts where it reads an option `tiles`: auto, or a number from 0 on; past the last cut of a problem the option
// is what supports refuses. What a cut is only the plugin knows; report.kernels names it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/terminal.h"
#include "verbs.h"

namespace anyattn::tools::bench {

// {rows[], skipped[], interrupted}. A row: heads, dtype, kv_cache_dtype, batch_invariant, shape, backend, plugin, and tiles[]: option,
// kernels and the figures of Rounds, or failed and why; the first is what the backend chooses itself. On the last of --threads.
nlohmann::ordered_json measure_tiles(const BenchOptions& options);

std::string tiles_text(const nlohmann::ordered_json& answer, const Terminal& terminal);

}  // namespace anyattn::tools::bench
