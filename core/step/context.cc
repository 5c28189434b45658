// SPDX-License-Identifier: Apache-2.0
// The chunk plan of an MLA prefill over a cached context. One rule: rows are dealt front to back, so the number of chunks
// follows from the total and a request that has run out simply has no rows (vLLM's even split made 30 chunks of what fits in
// 1).
#include <algorithm>
#include <limits>

#include "anyattn/step.h"
#include "anyattn/util.h"

namespace {

uint64_t total_of(const int32_t* lens, uint32_t count) {
  uint64_t total = 0;
  for (uint32_t i = 0; lens && i < count; ++i) total += static_cast<uint64_t>(std::max(lens[i], 0));
  return total;
}

}  // namespace

extern "C" {

uint64_t anyattn_step_context_workspace(const anyattn_limits* limits, uint32_t block_size) {
  if (!limits) return 0;
  constexpr uint64_t kMostRows = 65536;  // beyond it a larger chunk no longer makes a matrix product faster
  const uint64_t one_block_each = uint64_t{limits->max_num_reqs} * block_size;
  const uint64_t wished = std::max(8 * uint64_t{limits->max_seq_len}, 4 * one_block_each);
  return std::max(std::min(wished, kMostRows), one_block_each);
}

uint32_t anyattn_step_context_num_chunks(const int32_t* context_lens, uint32_t num_reqs, uint32_t workspace_rows) {
  if (workspace_rows == 0) return 0;
  return static_cast<uint32_t>((total_of(context_lens, num_reqs) + workspace_rows - 1) / workspace_rows);
}

int32_t anyattn_step_context_plan(const int32_t* context_lens, uint32_t num_reqs, uint32_t workspace_rows, uint32_t max_chunks,
                                  int32_t* row_start_loc, int32_t* context_start, uint32_t* chunk_rows,
                                  uint32_t* chunk_max_rows, uint32_t* num_chunks, anyattn_error* error) {
  if (!num_chunks || (num_reqs > 0 && !context_lens)) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: context_plan without %s",
                             num_chunks ? "lengths" : "a place");
  }
  if (workspace_rows == 0 || workspace_rows > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "step: context_plan with a workspace of %u rows; allowed: 1 to 2^31 - 1", workspace_rows);
  }
  for (uint32_t r = 0; r < num_reqs; ++r) {
    if (context_lens[r] >= 0) continue;
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: context_plan: request %u has a context of %d tokens", r,
                             context_lens[r]);
  }
  const uint32_t chunks = anyattn_step_context_num_chunks(context_lens, num_reqs, workspace_rows);
  if (chunks > max_chunks) {
    return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY,
                             "step: context_plan needs %u chunks of %u rows, the arrays have room for %u", chunks,
                             workspace_rows, max_chunks);
  }
  if (chunks > 0 && (!row_start_loc || !context_start || !chunk_rows || !chunk_max_rows)) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "step: context_plan of %u chunks without arrays to put them in",
                             chunks);
  }
  // Request r's rows stand at [begin_r, begin_r + context_lens[r]) of all rows in a line; chunk c is a window of that line.
  for (uint32_t c = 0; c < chunks; ++c) {
    const int64_t window_begin = int64_t{c} * workspace_rows;
    const int64_t window_end = window_begin + workspace_rows;
    int32_t* starts = row_start_loc + static_cast<size_t>(c) * (num_reqs + 1);
    int32_t* positions = context_start + static_cast<size_t>(c) * num_reqs;
    int64_t begin = 0;
    int32_t rows = 0;
    int32_t most = 0;
    for (uint32_t r = 0; r < num_reqs; ++r) {
      const int64_t from = std::clamp<int64_t>(window_begin - begin, 0, context_lens[r]);
      const int64_t to = std::clamp<int64_t>(window_end - begin, 0, context_lens[r]);
      starts[r] = rows;
      positions[r] = static_cast<int32_t>(from);
      rows += static_cast<int32_t>(to - from);
      most = std::max(most, static_cast<int32_t>(to - from));
      begin += context_lens[r];
    }
    starts[num_reqs] = rows;
    chunk_rows[c] = static_cast<uint32_t>(rows);
    chunk_max_rows[c] = static_cast<uint32_t>(most);
  }
  *num_chunks = chunks;
  return ANYATTN_OK;
}

}  // extern "C"
