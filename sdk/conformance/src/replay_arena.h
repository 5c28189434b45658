// SPDX-License-Identifier: Apache-2.0
// Everything a captured call points at, sized by the limits and at addresses that stay. Included by run_replay.cc.
#ifndef ANYATTN_CONFORMANCE_REPLAY_ARENA_H
#define ANYATTN_CONFORMANCE_REPLAY_ARENA_H

#include <memory>
#include <vector>

#include "outputs.h"
#include "session.h"

namespace anyattn::conformance {

class Arena {
 public:
  Arena(Session& session, const Case& c);
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Draws the batch's numbers and writes them: other lengths, and blocks in another order each time; the keys go through
  // kv_cache_update. Returns the right result of every row.
  virtual Reference fill(const Case& batch, uint64_t seed) = 0;
  // The capture's own call; its rows are those of the limits, whatever batch comes later.
  virtual int32_t forward(void* scratch, void* stream, anyattn_error* error) = 0;

  const anyattn_batch& batch() const { return view_; }
  void poison();         // out and lse
  Outputs read() const;  // the batch's rows

 protected:
  // Rows of a batch: where each request's begin, and which of the case's key rows its keys are.
  struct Rows {
    const std::vector<int32_t>& query_start_loc;
    int64_t num_tokens;
    std::vector<std::vector<int64_t>> key_rows;  // [num_reqs][key_len]
  };
  // Where a key goes, and which of the case's key rows it is.
  struct Place {
    int64_t slot, key_row;
  };
  // NaN in every slot, a table of scrambled blocks, lengths and maxima; gives the place of every key.
  std::vector<Place> lay_out(const Case& batch, const Rows& rows, uint64_t seed);
  // Values [rows, width] of the batch, NaN up to the limits' rows.
  void write_rows(Tensor& tensor, const std::vector<float>& values, size_t width) const;
  // Hands new keys to the backend; the caller has set all but the cache and the slots.
  void store(anyattn_kv_cache_update_args& args, const std::vector<Place>& places);
  size_t out_row() const { return static_cast<size_t>(c_.num_q_heads) * width_; }

  Session& session_;
  const Case& c_;
  const anyattn_limits& limits_;
  size_t width_;  // of a head of out
  int64_t table_stride_;
  CacheMemory memory_;
  anyattn_cache cache_{};
  Block starts_, seq_lens_, table_, causal_;
  Tensor out_, lse_;
  anyattn_batch view_{};
};

// Of a plain case, or of an MLA decode.
std::unique_ptr<Arena> make_arena(Session& session, const Case& c);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_REPLAY_ARENA_H
