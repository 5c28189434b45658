// SPDX-License-Identifier: Apache-2.0
// FLASH_ATTN: attention over a paged cache or ragged keys. Included by plugin.cc.
#pragma once

#include "anyattn/backend.hpp"
#include "metadata.h"

namespace anyattn::flash {

class FlashAttn {
 public:
  static constexpr const char* kName = "FLASH_ATTN";
  static constexpr const char* kDescription = "paged and ragged attention on NVIDIA's matrix units, sm_80 and sm_90";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CUDA;

  static void supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                       anyattn_support_report& report);
  static void kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                            const SpecSink& accept);

  FlashAttn(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
            const anyattn_kv_cache_spec* spec);
  void memory(const anyattn_limits& limits, anyattn_memory& memory) const;
  uint32_t warmup(const anyattn_limits& limits, void* stream, void* scratch);

  struct Metadata : StepMetadata {
    Metadata(FlashAttn& impl, const anyattn_limits& limits, uint32_t mode, void* persistent, void*)
        : StepMetadata(impl.plan_, limits, mode, persistent) {}
  };

  void kv_cache_update(const anyattn_kv_cache_update_args& args);
  void forward(const Metadata& metadata, const anyattn_forward_args& args);
  void merge_states(const anyattn_merge_args& args);

 private:
  const float* scale(const anyattn_tensor& tensor, const char* name) const;

  Plan plan_;
  CacheLayout layout_;
};

}  // namespace anyattn::flash
