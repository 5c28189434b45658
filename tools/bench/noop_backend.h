// SPDX-License-Identifier: Apache-2.0
// NOOP_ATTN called without the runtime: what is left when its cost is taken away. Included by bench.cc.
#pragma once

#include <string>

#include "anyattn/plugin.h"
#include "anyattn/runtime.h"

namespace anyattn::tools::bench {

// The no-op plugin beside this program: <bin>/../lib/anyattn/bench/anyattn_noop.so. Throws Failure where it is not there.
std::string noop_plugin_path();

// The plugin's own table, opened by path, with an impl and metadata for `batch`'s sizes.
class NoopBackend {
 public:
  explicit NoopBackend(const std::string& plugin_path);
  ~NoopBackend();
  NoopBackend(const NoopBackend&) = delete;
  NoopBackend& operator=(const NoopBackend&) = delete;

  void update(const anyattn_batch& batch) { table_->metadata_update(metadata_, &batch, nullptr, nullptr); }
  void store(const anyattn_kv_cache_update_args& args) { table_->kv_cache_update(impl_, &args, nullptr); }
  void forward(const anyattn_forward_args& args) { table_->forward(impl_, metadata_, &args, nullptr); }

 private:
  const anyattn_backend* table_ = nullptr;
  anyattn_impl* impl_ = nullptr;
  anyattn_metadata* metadata_ = nullptr;
};

}  // namespace anyattn::tools::bench
