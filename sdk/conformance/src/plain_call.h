// SPDX-License-Identifier: Apache-2.0
// One call of a plain backend on one batch: stores the keys, builds the metadata, runs forward, checks what was touched.
// Included by run_plain.cc.
#ifndef ANYATTN_CONFORMANCE_PLAIN_CALL_H
#define ANYATTN_CONFORMANCE_PLAIN_CALL_H

#include <memory>
#include <optional>
#include <vector>

#include "batch.h"
#include "case_data.h"
#include "outputs.h"
#include "paged_cache.h"
#include "session.h"

namespace anyattn::conformance {

inline uint32_t base_of(const Case& c) { return c.lse_base ? c.lse_base : ANYATTN_LSE_NATURAL; }
inline bool wants_lse(const Case& c) { return c.lse_base != 0 || c.cp_world_size > 0; }

class PlainCall {
 public:
  // Stores the keys at once. loose: maxima of the batch are the limits' own, host copies of the lengths are given.
  PlainCall(Session& session, const Case& c, const PlainData& data, uint32_t rank, Poison poison, bool loose);
  Outputs run();

 private:
  void make_keys(const std::vector<int64_t>& rows);
  void store();
  void store_range(const std::vector<Slot>& slots, size_t begin, size_t end);
  void free_unseen_blocks();
  void set_scales(Tensor* k, Tensor* v, anyattn_tensor* k_view, anyattn_tensor* v_view) const;
  size_t k_width() const { return static_cast<size_t>(c_.num_kv_heads) * static_cast<size_t>(data_.shape.head_size); }
  size_t v_width() const { return static_cast<size_t>(c_.num_kv_heads) * static_cast<size_t>(data_.shape.head_size_v); }

  Session& session_;
  const Case& c_;
  const PlainData& data_;
  uint32_t rank_;
  Batch batch_;
  std::optional<Batch> other_;  // of retable; lives as long as the metadata made of it
  std::unique_ptr<PagedCache> cache_;
  Tensor k_, v_;
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_PLAIN_CALL_H
