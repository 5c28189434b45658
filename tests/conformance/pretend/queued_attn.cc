// SPDX-License-Identifier: Apache-2.0
// QUEUED_ATTN: the naive backend behind the pretended device's streams, every graph level reached. Option `frozen: yes` keeps the
// batch that a capture saw, as a backend would that reads lengths on the host: a test must catch it.
#include "anyattn/plugin.hpp"
#include "kept.h"
#include "naive/naive_attn.h"
#include "queued_mla.h"

namespace pretend {

extern const anyattn_device_provider kProvider;

class QueuedAttn : public naive::NaiveAttn {
 public:
  static constexpr const char* kName = "QUEUED_ATTN";
  static constexpr const char* kDescription = "loops behind streams that can be captured";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CUDA;
  using Metadata = naive::NaiveAttn::Metadata;

  QueuedAttn(const anyattn::Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
             const anyattn_kv_cache_spec* spec)
      : NaiveAttn(host, facts, problem, spec), frozen_(host.option("frozen", "no") == "yes") {}

  uint32_t warmup(const anyattn_limits&, void*, void*) { return ANYATTN_GRAPH_ALWAYS; }

  void kv_cache_update(const anyattn_kv_cache_update_args& args) {
    const auto kept = std::make_shared<Kept<anyattn_kv_cache_update_args>>(args);
    for (anyattn_tensor* tensor : {&kept->args.k, &kept->args.v, &kept->args.slot_mapping}) kept->own(*tensor);
    queue(args.stream, [this, kept] { NaiveAttn::kv_cache_update(kept->args); });
  }

  void forward(const Metadata& metadata, const anyattn_forward_args& args) {
    const auto kept = std::make_shared<Kept<anyattn_forward_args>>(args);
    anyattn_forward_args& own = kept->args;
    for (anyattn_tensor* tensor : {&own.q, &own.k, &own.v, &own.sinks, &own.alibi_slopes, &own.out, &own.lse})
      kept->own(*tensor);
    if (frozen_) return queue(args.stream, [this, seen = metadata, kept] { NaiveAttn::forward(seen, kept->args); });
    queue(args.stream, [this, &metadata, kept] { NaiveAttn::forward(metadata, kept->args); });
  }

 private:
  bool frozen_;
};

// The same at half the speed: somebody to be measured against.
class TwiceAttn : public QueuedAttn {
 public:
  static constexpr const char* kName = "QUEUED_TWICE_ATTN";
  static constexpr const char* kDescription = "every call done twice";
  using QueuedAttn::QueuedAttn;

  void forward(const Metadata& metadata, const anyattn_forward_args& args) {
    QueuedAttn::forward(metadata, args);
    QueuedAttn::forward(metadata, args);
  }
};

}  // namespace pretend

extern "C" int32_t anyattn_plugin_entry_v0(uint32_t host_min, uint32_t host_max, const anyattn_host*,
                                           const anyattn_plugin** plugin, anyattn_error* error) {
  static constexpr const anyattn_device_provider* kProviders[] = {&pretend::kProvider};
  static constexpr anyattn_option_info kOptions[] = {{ANYATTN_OPTION_INFO_SIZE, 0, "frozen", "no", "yes | no"}};
  static constexpr anyattn::PluginInfo info{
      "org.anyattn.pretend", "AnyAttn tests", "1.0.0", "Apache-2.0", kOptions, 1, kProviders, 1};
  return anyattn::PluginTable<info, pretend::QueuedAttn, pretend::TwiceAttn, pretend::QueuedMla>::enter(host_min, host_max,
                                                                                                        plugin, error);
}
