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

// Keys that some of the rows at positions [first, first + rows) see. Both ends grow with the position, so the first row that sees
// anything gives the begin and the last one the end.
__device__ inline Interval visible_to_rows(const Mask& mask, bool causal, int keys, int first, int rows) {
  Interval seen = visible(mask, causal, keys, first + rows - 1);
  if (seen.begin >= seen.end) {  // a window may have left the keys behind
    for (int row = rows - 2; row >= 0 && seen.begin >= seen.end; --row) seen = visible(mask, causal, keys, first + row);
    if (seen.begin >= seen.end) return {0, 0};
  }
  for (int row = 0; row < rows; ++row) {
    const Interval one = visible(mask, causal, keys, first + row);
    if (one.begin < one.end) return {one.begin, seen.end};
  }
  return seen;
}

}  // namespace anyattn::flash
