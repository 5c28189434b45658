// SPDX-License-Identifier: Apache-2.0
// Code for a device that is not here: its facts, a host table with options, a problem, and the calls that compile for it through
// the plugin's interface alone. Included by prebuild.cc and the test of prebuilt code; a tool that warms a cache does the same.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "anyattn/absent_device.hpp"
#include "anyattn/backend.h"
#include "anyattn/plugin.h"

namespace anyattn::portable {

inline anyattn_device_facts absent_device(const std::string& architecture) {
  const std::optional<anyattn_device_facts> facts = absent_cuda_device(architecture);
  if (!facts) throw std::runtime_error("architecture " + architecture + "; allowed: " + kAbsentCudaDevices);
  return *facts;
}

// A causal layer over a paged cache in the query's dtype. kv_heads 0: a latent one of DeepSeek's sizes.
struct Shape {
  uint32_t q_heads, kv_heads, head_size, block_size, dtype;
  bool latent() const { return kv_heads == 0; }
  const char* backend() const { return latent() ? "PORTABLE_MLA" : "PORTABLE_ATTN"; }
};

inline anyattn_problem problem_of(const Shape& shape) {
  static constexpr uint64_t kNone = 0, kMla = uint64_t{1} << ANYATTN_FEATURE_MLA;
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_feature_words = 1;
  problem.features = shape.latent() ? &kMla : &kNone;
  problem.num_q_heads = shape.q_heads;
  problem.num_kv_heads = shape.latent() ? 1 : shape.kv_heads;
  problem.head_size = problem.head_size_v = shape.head_size;
  problem.q_dtype = problem.out_dtype = shape.dtype;
  problem.kv_cache_dtype = shape.dtype == ANYATTN_DTYPE_BFLOAT16 ? "bfloat16" : "float16";
  problem.block_size = shape.block_size;
  if (shape.latent()) {
    problem.head_size = 576;
    problem.head_size_v = problem.kv_lora_rank = 512;
    problem.qk_nope_head_dim = problem.v_head_dim = 128;
    problem.qk_rope_head_dim = 64;
  }
  return problem;
}

// A plugin file, opened; a host of one thread with these options.
class OpenPlugin {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  OpenPlugin(const std::string& file, Options options) : words_(std::move(options)) {
    for (const auto& [key, value] : words_) options_.push_back({ANYATTN_OPTION_SIZE, 0, key.c_str(), value.c_str()});
    cpu_.struct_size = ANYATTN_CPU_FACTS_SIZE;
    host_ = {ANYATTN_HOST_SIZE,
             0,
             nullptr,
             [](void*, int32_t, const char*) {},
             [](void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) {
               if (count > 0) fn(argument, 0, count, 0);
               return int32_t{ANYATTN_OK};
             },
             1,
             static_cast<uint32_t>(options_.size()),
             sizeof(anyattn_option),
             0,
             options_.data(),
             &cpu_};
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(dlerror());
    const auto enter = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(handle, ANYATTN_PLUGIN_ENTRY_NAME));
    if (!enter) throw std::runtime_error(file + " exports no " ANYATTN_PLUGIN_ENTRY_NAME);
    expect_ok(enter(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, &host_, &plugin_, error()));
  }
  OpenPlugin(const OpenPlugin&) = delete;
  OpenPlugin& operator=(const OpenPlugin&) = delete;

  // Empty where the backend takes the problem; else its reasons. What it would run goes to `kernels`.
  std::string reasons(const anyattn_device_facts& facts, const char* name, const anyattn_problem& problem,
                      std::string* kernels = nullptr) {
    std::string all;
    const anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, &all, [](void* to, const anyattn_reason* reason) {
                                     *static_cast<std::string*>(to) += std::string(reason->field) + "=" + reason->wanted +
                                                                       " (allowed: " + reason->allowed + ") ";
                                   }};
    anyattn_support_report report{};
    report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
    expect_ok(backend(name).supports(&host_, &facts, &problem, &sink, &report, error()));
    if (kernels) *kernels = report.kernels;
    return all;
  }
  std::string reasons(const anyattn_device_facts& facts, const Shape& shape) {
    return reasons(facts, shape.backend(), problem_of(shape));
  }

  // impl_create and warmup with the first spec; throws what the plugin says.
  void warm(const anyattn_device_facts& facts, const Shape& shape) {
    with_impl(facts, shape, [&](const anyattn_backend& of, anyattn_impl* impl) {
      const anyattn_limits limits{ANYATTN_LIMITS_SIZE, 64, 2048, 2048, 4096, 4096 / shape.block_size};
      uint32_t level = 0;
      expect_ok(of.warmup(impl, &limits, nullptr, nullptr, &level, error()));
    });
  }

  // An impl of the first spec for the time of the call.
  using Use = std::function<void(const anyattn_backend&, anyattn_impl*)>;
  void with_impl(const anyattn_device_facts& facts, const Shape& shape, const Use& use) {
    with_impl(facts, shape.backend(), problem_of(shape), use);
  }
  void with_impl(const anyattn_device_facts& facts, const char* name, const anyattn_problem& problem, const Use& use) {
    struct Call {
      OpenPlugin* plugin;
      const anyattn_device_facts* facts;
      const char* name;
      const anyattn_problem* problem;
      const Use* use;
      bool done;
      std::string failure;
    } call{this, &facts, name, &problem, &use, false, {}};
    const auto accept = [](void* context, const anyattn_kv_cache_spec* spec) {
      auto& of = *static_cast<Call*>(context);
      if (of.done) return;
      of.done = true;
      try {
        of.plugin->with_impl(*of.facts, of.plugin->backend(of.name), *of.problem, spec, *of.use);
      } catch (const std::exception& failure) {
        of.failure = failure.what();
      }
    };
    expect_ok(backend(name).kv_cache_spec(&host_, &facts, &problem, accept, &call, error()));
    if (!call.failure.empty()) throw std::runtime_error(call.failure);
  }

  const char* error_text() const { return text_; }
  anyattn_error* error() {
    error_ = {text_, sizeof text_, 0, 0, 0};
    return &error_;
  }
  void expect_ok(int32_t status) const {
    if (status != ANYATTN_OK) throw std::runtime_error(text_);
  }

 private:
  const anyattn_backend& backend(const char* name) const {
    for (uint32_t i = 0; i < plugin_->num_backends; ++i)
      if (std::strcmp(plugin_->backends[i]->name, name) == 0) return *plugin_->backends[i];
    throw std::runtime_error(std::string(plugin_->id) + " has no backend " + name);
  }
  void with_impl(const anyattn_device_facts& facts, const anyattn_backend& of, const anyattn_problem& problem,
                 const anyattn_kv_cache_spec* spec, const Use& use) {
    anyattn_impl* impl = nullptr;
    expect_ok(of.impl_create(&host_, &facts, &problem, spec, &impl, error()));
    try {
      use(of, impl);
    } catch (...) {
      of.impl_destroy(impl);
      throw;
    }
    of.impl_destroy(impl);
  }

  Options words_;
  std::vector<anyattn_option> options_;
  anyattn_cpu_facts cpu_{};
  anyattn_host host_{};
  const anyattn_plugin* plugin_ = nullptr;
  char text_[2000] = {};
  anyattn_error error_{};
};

}  // namespace anyattn::portable
