// SPDX-License-Identifier: Apache-2.0
// NAIVE_ATTN: plain attention as attention.h says it, loop by loop. A second opinion for tests, and the body of the mutants.
#pragma once

#include "format.h"
#include "merge.h"
#include "paged.h"

namespace naive {

class NaiveAttn {
 public:
  static constexpr const char* kName = "NAIVE_ATTN";
  static constexpr const char* kDescription = "loops in float32, every feature of a plain problem";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CPU;
  using Metadata = BatchMetadata<NaiveAttn>;

  static void supports(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&, anyattn::Reasons&,
                       anyattn_support_report&);
  static void kv_cache_spec(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&,
                            const anyattn::SpecSink&);
  NaiveAttn(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&, const anyattn_kv_cache_spec*);
  void memory(const anyattn_limits&, anyattn_memory&) const;
  uint32_t warmup(const anyattn_limits&, void*, void*) { return ANYATTN_GRAPH_NEVER; }
  void kv_cache_update(const anyattn_kv_cache_update_args&);
  void forward(const Metadata&, const anyattn_forward_args&);
  void merge_states(const anyattn_merge_args& args) { naive::merge_states(args); }

 private:
  struct Call;
  void one_row(const Call& call, int64_t row, int64_t head, float* scores) const;
  bool sees(const Call& call, uint32_t request, int64_t row, int64_t position, int64_t key_position) const;
  int64_t local_keys(int64_t seq_len) const;
  int64_t position_of(int64_t key) const;
  float bias(float slope, int64_t position, int64_t key_position) const;

  anyattn::Host host_;
  anyattn_problem problem_;
  uint64_t features_ = 0;
  anyattn_plane k_{}, v_{}, k_scale_{}, v_scale_{};
  CacheFormat format_;
  uint64_t digest_ = 0;
};

}  // namespace naive
