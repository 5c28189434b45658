// SPDX-License-Identifier: Apache-2.0
// One batch of equal requests on one group, and the caches it walks over: what bench times. Included by timing and own_cost.
// Measures nothing. MLA layers decode by forward_mqa and prefill by forward_mha among the new tokens; all others by forward.
#pragma once

#include <string>
#include <vector>

#include "anyattn/streams.hpp"
#include "bench/arena.h"
#include "bench/grid.h"
#include "common/rows.h"

namespace anyattn::tools::bench {

struct WorkloadOptions {
  std::string device = "auto";
  std::string backend;      // a must
  uint64_t cold_bytes = 0;  // between two uses of a cold cache
};

class Workload {
 public:
  // Throws RuntimeError with the selection's reasons. The arena grows where it must and outlives the workload.
  Workload(const Runtime& runtime, const WorkloadOptions& options, const Point& point, Arena& arena);
  Workload(const Workload&) = delete;  // tensors point into it
  Workload& operator=(const Workload&) = delete;

  void update();
  void store();    // the batch's new keys and values
  void queue();    // one forward (or forward_mqa, forward_mha) over the next cache
  void forward();  // the same, and waits, where the device is not the CPU

  // The caches, as many bytes each, and which is next; forward moves on by one.
  uint64_t cache_bytes() const { return cache_.num_blocks * cache_.block_stride_bytes; }
  uint32_t num_caches() const { return num_caches_; }
  // Takes the next caches for reading, `count` of them or as many as lie before the end.
  std::pair<const char*, uint64_t> take_caches(uint64_t count);

  const anyattn_group_info& info() const { return info_; }
  bool on_cpu() const { return info_.device_kind == ANYATTN_DEVICE_CPU; }
  Device device() const { return rows_.device(); }
  // What calls are queued on; null on the CPU.
  void* stream() const { return stream_.get(); }
  // Whether forward may be captured: the group was then made for that.
  bool captures() const { return captures_; }
  double bytes_a_key() const;
  // What the calls above pass on.
  const anyattn_batch& batch() const { return batch_; }
  const anyattn_kv_cache_update_args& store_args() const { return store_args_; }
  const anyattn_forward_args& forward_args() const { return forward_args_; }

 private:
  void make_for_capture(const WorkloadOptions& options);
  void make_caches(const WorkloadOptions& options);
  void fill_caches(uint64_t bytes);
  void make_batch();
  void make_args();
  void make_mla_args();
  void call();
  uint32_t part() const;
  int64_t slot(uint32_t request, uint32_t position) const;
  DeviceMemory filled(uint64_t num_values, double phase);
  Tensor rows_of(const DeviceMemory& memory, int64_t num_rows, uint32_t num_heads, uint32_t head_size) const;
  Tensor plain_rows(const DeviceMemory& memory, int64_t num_rows, uint32_t size) const;
  DeviceMemory uploaded(const std::vector<int32_t>& numbers) const;

  const Runtime& runtime_;
  const Point& point_;
  Arena& arena_;
  DeviceStream stream_;
  Group group_;
  anyattn_group_info info_;
  bool captures_ = false;
  RowCopier rows_;
  uint32_t blocks_per_req_ = 0;
  uint32_t num_caches_ = 1, next_cache_ = 0;
  anyattn_cache cache_{};  // the next one
  anyattn_batch batch_{};
  anyattn_kv_cache_update_args store_args_{};
  anyattn_forward_args forward_args_{};
  anyattn_mqa_args mqa_args_{};
  anyattn_mha_args mha_args_{};
  std::vector<int32_t> query_start_loc_, seq_lens_, table_;
  DeviceMemory q_, k_, v_, out_, slot_mapping_, query_start_loc_device_, seq_lens_device_, table_device_, head_values_;
  Tensor q_rows_, k_rows_, v_rows_, out_rows_, slot_rows_, head_rows_, kv_c_rows_, k_pe_rows_;
};

}  // namespace anyattn::tools::bench
