// SPDX-License-Identifier: Apache-2.0
// A group as the API's functions share it: impl(s), metadata, memory, and what calls are compared with. Included by core/api.
// Made cold in group_object.cc; used hot in group_calls.cc.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/runtime.h"
#include "api/checks.h"
#include "device/devices.h"
#include "memory/block.h"
#include "memory/scratch.h"
#include "selector/selector.h"

namespace anyattn::api {

// An impl with the plugin that made it.
class Impl {
 public:
  // Throws StatusError with the backend's words.
  Impl(const selector::Choice& choice, const anyattn_device_facts& facts, const selector::OwnedProblem& problem,
       const anyattn_kv_cache_spec* spec, const std::string& who);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const anyattn_backend& table() const { return backend_.table; }
  const char* name() const { return backend_.key.name.c_str(); }
  anyattn_impl* get() const { return impl_; }

 private:
  const registry::OpenBackend backend_;
  anyattn_impl* impl_ = nullptr;
};

// Rows of one phase: metadata with its memory. Absent in a group that has no such part.
struct Part {
  Part() = default;
  ~Part();
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Impl* impl = nullptr;
  anyattn_metadata* metadata = nullptr;
  memory::Block persistent;
  memory::Block pinned;
  PartState state;
};

// What a group is made from, besides the options of the caller.
struct GroupRequest {
  std::shared_ptr<const selector::Decision> decision;  // ok()
  anyattn_limits limits{};                             // as the caller gave them
  std::string label;
  uint32_t metadata_mode = 0;
  void* stream = nullptr;
  const anyattn_device_provider* provider = nullptr;
  const anyattn_device_facts* facts = nullptr;
  memory::Scratch* scratch = nullptr;
  std::shared_ptr<const void> keep;  // whatever owns provider, facts and scratch
};

}  // namespace anyattn::api

struct anyattn_group {
  // Throws StatusError.
  explicit anyattn_group(const anyattn::api::GroupRequest& request);

  // Null for a part that this group does not have.
  anyattn::api::Part* part(uint32_t phase) { return phase < parts.size() && parts[phase].metadata ? &parts[phase] : nullptr; }

  std::shared_ptr<const void> keep;
  std::shared_ptr<const anyattn::selector::Decision> decision;
  anyattn::selector::OwnedSpec owned_spec;
  anyattn_kv_cache_spec spec{};  // points into owned_spec
  anyattn::api::Expected expected;
  anyattn::memory::Scratch* scratch = nullptr;
  uint64_t scratch_bytes = 0;
  std::vector<std::unique_ptr<anyattn::api::Impl>> impls;  // one, or decode's and prefill's
  std::array<anyattn::api::Part, 3> parts;                 // by ANYATTN_PHASE_*; destroyed before the impls

  std::string label;
  std::string prefill_backend;
  std::string decode_backend;
  std::string plugin;
  std::string kv_cache_dtype;
  uint32_t block_size = 0;
  uint32_t decode_threshold = 1;
  uint32_t graph_level = 0;
  uint32_t query_lengths = 0;

 private:
  void take_limits(const anyattn::api::GroupRequest& request);
  void make_impls(const anyattn::api::GroupRequest& request);
  void warm_up(const anyattn::api::GroupRequest& request);
  void make_part(const anyattn::api::GroupRequest& request, uint32_t phase, anyattn::api::Impl& impl);
};
