// SPDX-License-Identifier: Apache-2.0
// Other libraries on a row's two products, where their programs were built: <bin>/../lib/anyattn/bench/peer_NAME.
// Included by bench. Links none of them.
#pragma once

#include <string>
#include <vector>

#include "bench/grid.h"

namespace anyattn::tools::bench {

struct Peer {
  std::string name;  // onednn, openblas
  double scores_us;  // q k^T at its whole size, causal or not; no softmax, no mask
  double values_us;  // p v
};

// Every peer that is there and can; empty for MLA, for windows and for a cache in another format than the queries.
std::vector<Peer> measure_peers(const Point& point, const std::string& kv_cache_dtype, uint32_t threads, uint32_t samples,
                                double min_time_s);

}  // namespace anyattn::tools::bench
