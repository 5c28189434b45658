// SPDX-License-Identifier: Apache-2.0
// CPU_ATTN: attention over a paged cache or ragged keys on the CPU. Included by plugin.cc.
#pragma once

#include "anyattn/backend.hpp"
#include "cache.h"
#include "plan.h"
#include "worklist.h"

namespace anyattn::cpu {

class CpuAttn {
 public:
  static constexpr const char* kName = "CPU_ATTN";
  static constexpr const char* kDescription =
      "paged and ragged attention in float32, float16 and bfloat16, one kernel for each instruction set";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CPU;

  static void supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                       anyattn_support_report& report);
  static void kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                            const SpecSink& accept);

  CpuAttn(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
          const anyattn_kv_cache_spec* spec);
  void memory(const anyattn_limits& limits, anyattn_memory& memory) const;
  uint32_t warmup(const anyattn_limits& limits, void* stream, void* scratch);

  struct Metadata : Worklist {
    Metadata(CpuAttn& impl, const anyattn_limits& limits, uint32_t mode, void* persistent, void* pinned)
        : Worklist(impl.plan_, limits, mode, persistent) {
      (void)pinned;
    }
  };

  void kv_cache_update(const anyattn_kv_cache_update_args& args);
  void forward(const Metadata& metadata, const anyattn_forward_args& args);
  void merge_states(const anyattn_merge_args& args);

 private:
  Host host_;
  Plan plan_;
  CacheLayout layout_;
};

}  // namespace anyattn::cpu
