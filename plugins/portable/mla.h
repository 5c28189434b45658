// SPDX-License-Identifier: Apache-2.0
// PORTABLE_MLA: multi-head latent attention. Decode is attention over latent rows whose first entries are the values, prefill
// is attention on expanded keys with offsets of its own; both are the kernels of PORTABLE_ATTN. Included by plugin.cc.
#pragma once

#include "anyattn/backend.hpp"
#include "cache.h"
#include "worklist.h"

namespace anyattn::portable {

class PortableMla {
 public:
  static constexpr const char* kName = "PORTABLE_MLA";
  static constexpr const char* kDescription = "latent decode, context gather and expanded prefill from the same kernel text";
  static constexpr uint32_t kDevice = ANYATTN_PORTABLE_DEVICE;

  static void supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                       anyattn_support_report& report);
  static void kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                            const SpecSink& accept);

  PortableMla(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
              const anyattn_kv_cache_spec* spec);
  void memory(const anyattn_limits& limits, anyattn_memory& memory) const;
  uint32_t warmup(const anyattn_limits& limits, void* stream, void* scratch);

  struct Metadata : Worklist {
    Metadata(PortableMla& impl, const anyattn_limits& limits, uint32_t mode, void* persistent, void*)
        : Worklist(impl.plan_, impl.kernels_, limits, mode, persistent) {}
  };

  void kv_cache_update(const anyattn_kv_cache_update_args& args);
  void forward_mqa(const Metadata& metadata, const anyattn_mqa_args& args);
  void context_gather(const Metadata& metadata, const anyattn_context_chunk& chunk, const anyattn_context_gather_args& args);
  void forward_mha(const anyattn_mha_args& args);
  void merge_states(const anyattn_merge_args& args);

 private:
  Host host_;
  Plan plan_;
  Kernels kernels_, mha_kernels_;
  CacheLayout layout_;
};

}  // namespace anyattn::portable
