// SPDX-License-Identifier: Apache-2.0
// A backend inside the test program: does nothing, counts every call, and misbehaves on demand. Included by tests of groups.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "anyattn/backend.h"
#include "api/group_object.h"
#include "device/devices.h"
#include "memory/scratch.h"
#include "selector/selector.h"

namespace fake {

// What the backend saw and what it does next; reset() before each case.
struct BackendState {
  std::atomic<int> impls{0};
  std::atomic<int> metadata{0};
  std::atomic<int> updates{0};
  std::atomic<int> forwards{0};
  std::atomic<int> cache_updates{0};
  std::atomic<int> other_calls{0};
  std::atomic<void*> scratch{nullptr};     // of the last forward
  std::atomic<uint32_t> args_size{0};      // struct_size of the last forward's args
  std::atomic<uint32_t> problem_phase{0};  // of the last impl_create
  std::atomic<bool> persistent_was_zero{true};
  uint64_t scratch_bytes = 4096;
  uint64_t persistent_bytes = 512;
  uint64_t pinned_bytes = 128;
  uint32_t graph_level = ANYATTN_GRAPH_NEVER;
  const char* throw_in = "";  // slot that throws
  const char* fail_in = "";   // slot that answers INTERNAL with a text
};
BackendState& backend_state();
void reset_backend();

anyattn_backend plain_backend();
anyattn_backend mla_backend();

// A problem with the words it points to.
struct OwnedWords {
  uint64_t features = 0;
  anyattn_problem problem{};
  OwnedWords& set(uint32_t feature) {
    features |= uint64_t{1} << feature;
    return *this;
  }
  const anyattn_problem& view() {
    problem.features = &features;
    return problem;
  }
};
OwnedWords plain_problem();  // 8 q heads, 2 kv heads, 64, float32, paged, blocks of 16
OwnedWords mla_problem();    // 4 heads, 512 + 64, nope 128, v 128, float32, blocks of 16
anyattn_limits limits();     // 8 requests, 64 tokens, 32 rows, 256 keys

// Everything a group wants of a runtime, without one.
class GroupMaker {
 public:
  GroupMaker();
  // backends: one, or decode's and prefill's. Throws as the group does.
  std::unique_ptr<anyattn_group> make(const anyattn_problem& problem, std::initializer_list<anyattn_backend> backends,
                                      const char* label = "full");
  // A decision for the problem with these backends, all of `report`.
  std::shared_ptr<anyattn::selector::Decision> decide(const anyattn_problem& problem,
                                                      std::initializer_list<anyattn_backend> backends) const;
  anyattn_support_report report{};    // of every backend
  anyattn::api::GroupRequest base{};  // what make() completes: what is said of quarantine and of the metadata's mode
  std::string origin;                 // of the decision
  anyattn::memory::Scratch& scratch() { return *scratch_; }

 private:
  anyattn::device::Devices devices_{nullptr};
  std::unique_ptr<anyattn::memory::Scratch> scratch_;
  anyattn_host host_{};
};

}  // namespace fake
