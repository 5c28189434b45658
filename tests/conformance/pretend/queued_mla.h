// SPDX-License-Identifier: Apache-2.0
// QUEUED_MLA: the naive MLA backend behind the pretended device's streams. Calls whose batch is an argument run at once, and so
// are no part of a graph: an engine that captures one gets what the capture saw.
#pragma once

#include "kept.h"
#include "naive/naive_mla.h"

namespace pretend {

class QueuedMla : public naive::NaiveMla {
 public:
  static constexpr const char* kName = "QUEUED_MLA";
  static constexpr const char* kDescription = "MLA loops behind streams that can be captured";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CUDA;
  using Metadata = naive::NaiveMla::Metadata;

  using NaiveMla::NaiveMla;

  uint32_t warmup(const anyattn_limits& limits, void* stream, void* scratch) {
    NaiveMla::warmup(limits, stream, scratch);
    return ANYATTN_GRAPH_ALWAYS;
  }

  void kv_cache_update(const anyattn_kv_cache_update_args& args) {
    const auto kept = std::make_shared<Kept<anyattn_kv_cache_update_args>>(args);
    for (anyattn_tensor* tensor : {&kept->args.kv_c, &kept->args.k_pe, &kept->args.slot_mapping}) kept->own(*tensor);
    queue(args.stream, [this, kept] { NaiveMla::kv_cache_update(kept->args); });
  }

  void forward_mqa(const Metadata& metadata, const anyattn_mqa_args& args) {
    const auto kept = std::make_shared<Kept<anyattn_mqa_args>>(args);
    anyattn_mqa_args& own = kept->args;
    for (anyattn_tensor* tensor : {&own.q_latent, &own.q_pe, &own.out, &own.lse}) kept->own(*tensor);
    queue(args.stream, [this, &metadata, kept] { NaiveMla::forward_mqa(metadata, kept->args); });
  }
};

}  // namespace pretend
