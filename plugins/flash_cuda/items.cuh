// SPDX-License-Identifier: Apache-2.0
// How schedules cut requests into items: up to `tokens` query tokens of one request. Included by the cuts of both paths.
#pragma once

#include "params.h"

namespace anyattn::flash {

// Items of a request; 0: another lane's. Cut: Work or PlanArgs, with min_query, max_query and tokens of the lane.
template <class Cut>
__device__ inline int items_of(const Cut& cut, const Batch& batch, int req) {
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req];
  return rows < cut.min_query || rows > cut.max_query ? 0 : (rows + cut.tokens - 1) / cut.tokens;
}

}  // namespace anyattn::flash
