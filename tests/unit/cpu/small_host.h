// SPDX-License-Identifier: Apache-2.0
// A host of one plugin file for the tests of plugins/cpu: opens it, lends it threads in name only, options and CPU facts.
#pragma once

#include <string>
#include <vector>

#include "anyattn/plugin.h"

namespace anyattn::cpu_test {

// Bits of host.h that this processor and its system have.
uint64_t isa_of_this_machine();

// The sets of the option `isa` that this machine runs, "portable" last.
std::vector<std::string> runnable_isas();

// parallel_for runs in the caller, one item a call, over worker numbers 0..num_workers-1 in turn: splits and per-worker
// scratch are used as with threads, and results do not depend on timing.
class SmallHost {
 public:
  explicit SmallHost(uint32_t num_workers = 1, const std::string& isa = "auto");
  SmallHost(const SmallHost&) = delete;
  SmallHost& operator=(const SmallHost&) = delete;

  const anyattn_host* get() const { return &host_; }
  void set_isa_bits(uint64_t bits) { facts_.isa = bits; }
  // parallel_for on threads of its own from now on.
  void use_threads() { host_.parallel_for = &run_on_threads; }
  const std::vector<std::string>& log() const { return log_; }
  const anyattn_backend& backend(const char* name) const;

 private:
  static int32_t run_in_turn(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument);
  static int32_t run_on_threads(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument);
  static void keep_line(void* context, int32_t level, const char* line);

  std::vector<std::string> log_;
  std::string isa_;
  anyattn_cpu_facts facts_{};
  anyattn_option option_{};
  anyattn_host host_{};
};

const anyattn_device_facts& cpu_device();
const anyattn_plugin& cpu_plugin();

// An error slot with room for a sentence.
struct ErrorText {
  char text[600] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  anyattn_error* get() { return &error; }
};

}  // namespace anyattn::cpu_test
