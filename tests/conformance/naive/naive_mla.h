// SPDX-License-Identifier: Apache-2.0
// NAIVE_MLA: MLA as attention.h says it, loop by loop. A second opinion for tests.
#pragma once

#include "merge.h"
#include "paged.h"

namespace naive {

class NaiveMla {
 public:
  static constexpr const char* kName = "NAIVE_MLA";
  static constexpr const char* kDescription = "MLA loops in float32";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CPU;
  using Metadata = BatchMetadata<NaiveMla>;

  static void supports(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&, anyattn::Reasons&,
                       anyattn_support_report&);
  static void kv_cache_spec(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&,
                            const anyattn::SpecSink&);
  NaiveMla(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&, const anyattn_kv_cache_spec*);
  void memory(const anyattn_limits&, anyattn_memory&) const;
  uint32_t warmup(const anyattn_limits& limits, void*, void*) {
    score_stride_ = limits.max_seq_len;
    return ANYATTN_GRAPH_NEVER;
  }
  void kv_cache_update(const anyattn_kv_cache_update_args&);
  void forward_mqa(const Metadata&, const anyattn_mqa_args&);
  void context_gather(const Metadata&, const anyattn_context_chunk&, const anyattn_context_gather_args&);
  void forward_mha(const anyattn_mha_args&);
  void merge_states(const anyattn_merge_args& args) { naive::merge_states(args); }

 private:
  int64_t latent() const { return problem_.kv_lora_rank; }
  int64_t rope() const { return problem_.qk_rope_head_dim; }
  const std::byte* latent_row(const anyattn_cache& cache, const anyattn_batch& batch, uint32_t request, int64_t key) const;
  int64_t position_of(int64_t key) const;
  int64_t local_keys(int64_t seq_len) const;

  anyattn::Host host_;
  anyattn_problem problem_;
  uint64_t features_ = 0;
  anyattn_plane plane_{};
  uint64_t digest_ = 0;
  uint64_t score_stride_ = 0;
};

}  // namespace naive
