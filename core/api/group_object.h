// SPDX-License-Identifier: Apache-2.0
// A group as the API's functions share it: impl(s), metadata, memory, and what calls are compared with. Included by core/api.
// Made cold in group_object.cc; used hot in group_calls.cc.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
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
  const char* plugin() const { return backend_.plugin ? backend_.plugin->id.c_str() : ""; }
  const registry::Key& key() const { return backend_.key; }
  anyattn_impl* get() const { return impl_; }

  // Hot: of calls that give an answer. A success ends a row of failures.
  void note(int32_t status, const anyattn_error* error) const noexcept {
    if (status != ANYATTN_OK || failures_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      note_rare(status, error);
  }
  // Counts statuses that speak of the backend, not of the caller or of the device.
  void note_failure(int32_t status, const anyattn_error* error) const noexcept;
  uint32_t failures_in_a_row() const { return failures_.load(std::memory_order_relaxed); }
  std::string last_failure() const;

 private:
  void note_rare(int32_t status, const anyattn_error* error) const noexcept;

  const registry::OpenBackend backend_;
  anyattn_impl* impl_ = nullptr;
  mutable std::atomic<uint32_t> failures_{0};
  mutable std::mutex mutex_;  // guards last_failure_
  mutable std::string last_failure_;
};

// Rows of one phase: metadata with its memory. Absent in a group that has no such part.
struct Part {
  Part() = default;
  ~Part();
  Part(Part&& other) noexcept
      : impl(other.impl),
        metadata(std::exchange(other.metadata, nullptr)),
        persistent(std::move(other.persistent)),
        pinned(std::move(other.pinned)),
        state(std::exchange(other.state, {})) {}
  Part& operator=(Part&&) = delete;

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
  // After so many failing calls in a row the group leaves its backend; 0: never. `successor` finds who takes over, or answers a
  // decision that is not ok(); `moved` hears who was left, why, and for whom.
  uint32_t quarantine_after = 0;
  std::function<std::shared_ptr<const selector::Decision>(const selector::Request::Successor&)> successor;
  std::function<void(const registry::Key& left, const std::string& why, const Impl& next)> moved;
};

}  // namespace anyattn::api

struct anyattn_group {
  // Throws StatusError.
  explicit anyattn_group(const anyattn::api::GroupRequest& request);

  // Null for a part that this group does not have.
  anyattn::api::Part* part(uint32_t phase) { return phase < parts.size() && parts[phase].metadata ? &parts[phase] : nullptr; }

  // Before a part is updated: moves the part to another backend where its own failed too often, or says that the group stopped.
  // Cold work, if any, goes to `stream`.
  int32_t leave_failing_backend(uint32_t phase, void* stream, anyattn_error* error) noexcept;

  const anyattn::api::GroupRequest request;
  std::shared_ptr<const anyattn::selector::Decision> decision;  // as the group was made
  anyattn::selector::OwnedSpec owned_spec;
  anyattn_kv_cache_spec spec{};  // points into owned_spec
  anyattn::api::Expected expected;
  anyattn::memory::Scratch* scratch = nullptr;
  std::atomic<uint64_t> scratch_bytes = 0;
  // One, or decode's and prefill's; then each that took over. None goes before the group: work may be queued.
  std::vector<std::unique_ptr<anyattn::api::Impl>> impls;
  std::atomic<const anyattn::api::Impl*> writer = nullptr;  // of caches and merges: the newest that is warmed up
  const anyattn::api::Impl *decode_as_made = nullptr, *newest_as_made = nullptr;
  std::vector<anyattn::api::Part> left_parts;  // of backends that were left; destroyed before the impls, as parts
  std::array<anyattn::api::Part, 3> parts;     // by ANYATTN_PHASE_*

  std::string label;
  std::string kv_cache_dtype;
  uint32_t block_size = 0;
  uint32_t decode_threshold = 1;
  uint32_t graph_level = 0;
  uint32_t query_lengths = 0;

 private:
  void take_limits();
  anyattn::api::Impl& make_impl(const anyattn::selector::Choice& choice);
  void warm_up(const anyattn::api::Impl& impl, void* stream);
  void make_part(uint32_t phase, anyattn::api::Impl& impl, void* stream);
  void take_over(const std::string& why, void* stream);
  int32_t leave_or_stay(uint32_t phase, void* stream, anyattn_error* error);

  std::string stopped_;  // why nothing is updated any more
};
