// SPDX-License-Identifier: Apache-2.0
// Which keys a row sees (attention.h): every mask here is one interval of keys, which also bounds the work. Included by schedules and
// kernels of all families.
#pragma once

#include "params.h"

namespace anyattn::flash {

struct Interval {
  int begin, end;  // keys [begin, end); empty: 0, 0
};

__device__ inline bool is_causal(const Mask& mask, const Batch& batch, int req) {
  return mask.causality == kPerRequest ? batch.causal[req] != 0 : mask.causality == kCausal;
}

// Keys that the row at `position` sees in a request of `keys` keys.
__device__ inline Interval visible(const Mask& mask, bool causal, int keys, int position) {
  Interval seen{0, causal ? min(keys, position + 1) : keys};
  if (mask.window_left >= 0) seen.begin = max(0, position - mask.window_left);
  if (mask.window_right >= 0 && !causal) seen.end = min(keys, position + mask.window_right + 1);
  return seen.begin < seen.end ? seen : Interval{0, 0};
}

// The mask of one request's rows, as kernels of both paths ask it.
struct RowMask {
  const Mask& mask;
  bool causal;
  int keys;  // of the request

  __device__ Interval seen(int position) const { return visible(mask, causal, keys, position); }
};

// Keys [0, n) of a request that its rows leave to the pass over a shared prefix: all rows see all of them, or n is 0.
__device__ inline int shared_keys(const Mask& mask, const Batch& batch, const SharedPrefix& shared, int req) {
  const int rows = batch.query_start_loc[req + 1] - batch.query_start_loc[req], keys = batch.seq_lens[req];
  if (req >= shared.reqs || rows == 0) return 0;
  const bool causal = is_causal(mask, batch, req);
  const Interval first = visible(mask, causal, keys, keys - rows), last = visible(mask, causal, keys, keys - 1);
  return first.begin == 0 && last.begin == 0 && first.end >= shared.keys ? shared.keys : 0;
}
__device__ inline int shared_keys(const Mask& mask, const Batch& batch, int req) {
  return batch.shared ? shared_keys(mask, batch, *batch.shared, req) : 0;
}

// Keys that some of the rows at positions [first, first + rows) see. Both ends grow with the position, so the first row that sees
// anything gives the begin and the last one the end; where that sees nothing its position is below 0, and so is every row's.
__device__ inline Interval visible_to_rows(const Mask& mask, bool causal, int keys, int first, int rows) {
  const Interval seen = visible(mask, causal, keys, first + rows - 1);
  for (int row = 0; row < rows && seen.begin < seen.end; ++row) {
    const Interval one = visible(mask, causal, keys, first + row);
    if (one.begin < one.end) return {one.begin, seen.end};
  }
  return seen;
}

}  // namespace anyattn::flash
