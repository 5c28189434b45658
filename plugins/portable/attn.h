// SPDX-License-Identifier: Apache-2.0
// PORTABLE_ATTN: attention over a paged cache or ragged keys. Included by plugin.cc.
#pragma once

#include "anyattn/backend.hpp"
#include "cache.h"
#include "worklist.h"

namespace anyattn::portable {

class PortableAttn {
 public:
  static constexpr const char* kName = "PORTABLE_ATTN";
  static constexpr const char* kDescription = "paged and ragged attention from one kernel text for every vendor";
  static constexpr uint32_t kDevice = ANYATTN_PORTABLE_DEVICE;

  static void supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                       anyattn_support_report& report);
  static void kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                            const SpecSink& accept);

  PortableAttn(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
               const anyattn_kv_cache_spec* spec);
  void memory(const anyattn_limits& limits, anyattn_memory& memory) const;
  uint32_t warmup(const anyattn_limits& limits, void* stream, void* scratch);

  struct Metadata : Worklist {
    Metadata(PortableAttn& impl, const anyattn_limits& limits, uint32_t mode, void* persistent, void*)
        : Worklist(impl.plan_, impl.kernels_, limits, mode, persistent) {}
  };

  void kv_cache_update(const anyattn_kv_cache_update_args& args);
  void forward(const Metadata& metadata, const anyattn_forward_args& args);
  void merge_states(const anyattn_merge_args& args);

 private:
  Host host_;
  Plan plan_;
  Kernels kernels_;
  CacheLayout layout_;
};

}  // namespace anyattn::portable
