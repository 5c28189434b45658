// SPDX-License-Identifier: Apache-2.0
// The attention of a small Llama through the runtime: one group for all layers, a paged cache, one request.
// Included by generate. Computes no attention; converts to and from the group's dtype and copies to and from its device.
#pragma once

#include <memory>
#include <vector>

#include "anyattn/kv_pool.h"
#include "common/rows.h"
#include "llama/model.h"
#include "verbs.h"

namespace anyattn::tools::llama {

class PagedAttention : public Attention {
 public:
  // max_tokens: rows of a step; max_seq_len: positions. Throws RuntimeError with the selection's reasons where nobody takes it.
  PagedAttention(const Runtime& runtime, const Shape& shape, const TargetOptions& target, int max_tokens, int max_seq_len);

  void begin_step(int position, int num_tokens) override;
  void attend(int layer, std::span<const float> q, std::span<const float> k, std::span<const float> v,
              std::span<float> out) override;

  // Of the group; strings live as long as this object.
  const anyattn_group_info& info() const { return info_; }

 private:
  struct Destroy {
    void operator()(anyattn_kv_pool* pool) const { anyattn_kv_pool_destroy(pool); }
  };

  void make_pool(const Runtime& runtime, int max_seq_len);
  void make_memory(const Runtime& runtime, int max_tokens);
  uint32_t part() const;  // ANYATTN_PHASE_* of this step

  Shape shape_;
  Group group_;
  anyattn_group_info info_;
  RowCopier rows_;
  std::unique_ptr<anyattn_kv_pool, Destroy> pool_;
  std::vector<anyattn_cache> caches_;  // of each layer

  int num_tokens_ = 0;  // of this step
  std::vector<int32_t> block_table_;
  std::vector<int64_t> slots_;
  DeviceMemory q_, k_, v_, out_, query_start_loc_, seq_lens_, table_, slot_mapping_;
};

}  // namespace anyattn::tools::llama
