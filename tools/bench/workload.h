// SPDX-License-Identifier: Apache-2.0
// One batch of equal requests on one group with a filled cache: what bench times. Included by bench.cc.
// Measures nothing.
#pragma once

#include <string>
#include <vector>

#include "common/rows.h"
#include "verbs.h"

namespace anyattn::tools::bench {

struct WorkloadShape {
  std::string name;
  uint32_t num_reqs;
  uint32_t query_len;  // rows a request
  uint32_t seq_len;    // keys a request, the rows counted
  uint32_t num_q_heads = 32;
  uint32_t num_kv_heads = 8;
  uint32_t head_size = 128;

  double flops() const;                        // of scores and P.V over visible keys
  double bytes(uint32_t element_bytes) const;  // K and V read once, q read and out written
};

class Workload {
 public:
  // Throws RuntimeError with the selection's reasons.
  Workload(const Runtime& runtime, const TargetOptions& target, const std::string& backend, const WorkloadShape& shape);
  Workload(const Workload&) = delete;  // tensors point into it
  Workload& operator=(const Workload&) = delete;

  void update();
  void store();    // the batch's new keys and values
  void forward();  // and waits, where the device is not the CPU

  const anyattn_group_info& info() const { return info_; }
  uint32_t dtype() const { return rows_.dtype(); }
  // What the calls above pass on.
  const anyattn_batch& batch() const { return batch_; }
  const anyattn_kv_cache_update_args& store_args() const { return store_args_; }
  const anyattn_forward_args& forward_args() const { return forward_args_; }

 private:
  void make_cache(const Runtime& runtime);
  void make_batch(const Runtime& runtime);
  void fill_cache(const Runtime& runtime);
  void make_args(const Runtime& runtime);
  uint32_t part() const;
  Tensor heads(const DeviceMemory& memory, int64_t num_rows, uint32_t num_heads) const;
  Tensor slots(const DeviceMemory& memory, int64_t num_rows) const;
  // Slot of token `position` of request `request`.
  int64_t slot(uint32_t request, uint32_t position) const;

  const Runtime& runtime_;
  WorkloadShape shape_;
  Group group_;
  anyattn_group_info info_;
  RowCopier rows_;
  uint32_t blocks_per_req_ = 0;
  anyattn_cache cache_{};
  anyattn_batch batch_{};
  anyattn_kv_cache_update_args store_args_{};
  anyattn_forward_args forward_args_{};
  std::vector<int32_t> query_start_loc_, seq_lens_;
  DeviceMemory blocks_, q_, k_, v_, out_, slot_mapping_, query_start_loc_device_, seq_lens_device_, table_;
  Tensor q_rows_, k_rows_, v_rows_, out_rows_, slot_rows_;
};

}  // namespace anyattn::tools::bench
