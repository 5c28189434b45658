// SPDX-License-Identifier: Apache-2.0
// The host table as an object: options, threads, log, CPU facts. Included by plugins.
// A Host borrows the table it was made of, which lives as host.h says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "anyattn/error.hpp"
#include "anyattn/host.h"

namespace anyattn {

class Host {
 public:
  explicit Host(const anyattn_host* host) : host_(host) {
    if (!host) throw Error(ANYATTN_INVALID_ARGUMENT, "the host table is null");
    if (host->struct_size < ANYATTN_HOST_SIZE)
      throw Error(ANYATTN_ABI_MISMATCH, "the host table has ", host->struct_size, " bytes; needed: ", ANYATTN_HOST_SIZE);
  }

  uint32_t num_workers() const { return host_->num_workers; }
  uint64_t isa() const { return host_->cpu->isa; }
  uint32_t cpu_arch() const { return host_->cpu->arch; }
  void log(int32_t level, const std::string& line) const { host_->log(host_->context, level, line.c_str()); }

  // The option's text, or `fallback` where the configuration names none. The last one of equal keys counts.
  std::string_view option(std::string_view key, std::string_view fallback) const {
    std::string_view value = fallback;
    for (uint32_t i = 0; i < host_->num_options; ++i) {
      const char* at = reinterpret_cast<const char*>(host_->options) + static_cast<size_t>(i) * host_->option_stride;
      const auto* one = reinterpret_cast<const anyattn_option*>(at);
      if (key == one->key) value = one->value;
    }
    return value;
  }

  // f(begin, end, worker) on the host's threads; see anyattn_host.parallel_for. f must not throw.
  template <class F>
  void parallel_for(uint64_t count, uint64_t grain, F&& f) const {
    using Function = std::remove_reference_t<F>;
    const auto call = [](void* argument, uint64_t begin, uint64_t end, uint32_t worker) {
      (*static_cast<Function*>(argument))(begin, end, worker);
    };
    const int32_t status =
        host_->parallel_for(host_->context, count, grain, call, const_cast<void*>(static_cast<const void*>(&f)));
    if (status != ANYATTN_OK) throw Error(status, "parallel_for of the host answered status ", status);
  }

 private:
  const anyattn_host* host_;
};

}  // namespace anyattn
