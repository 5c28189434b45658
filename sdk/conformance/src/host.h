// SPDX-License-Identifier: Apache-2.0
// A small host: what a plugin is lent, without the core. Runs ranges one after the other in a shuffled order under changing
// worker numbers, and counts what the plugin asks of it. Included by the kit's runs; one thread.
#ifndef ANYATTN_CONFORMANCE_HOST_H
#define ANYATTN_CONFORMANCE_HOST_H

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "anyattn/conformance/numbers.h"
#include "anyattn/host.h"

namespace anyattn::conformance {

class Host {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  // isa_mask: instruction sets the plugin may learn of.
  Host(Options options, uint64_t isa_mask);
  // Lends as little as a host may: no option, no instruction set, sizes unknown, one worker, ranges undivided.
  static std::unique_ptr<Host> bare();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const anyattn_host* table() const { return &table_; }
  // The order and the split of the next parallel_for calls depend on the seed only.
  void reseed(uint64_t seed) { generator_ = SplitMix64(seed); }

  const std::vector<std::string>& log() const { return log_; }

  // A parallel_for inside a parallel_for, which the interface forbids, was seen.
  bool nested() const { return nested_; }

 private:
  static void log_line(void* context, int32_t level, const char* line);
  static int32_t parallel_for(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument);

  Options options_;
  std::vector<anyattn_option> option_table_;
  anyattn_cpu_facts cpu_{};
  anyattn_host table_{};
  SplitMix64 generator_{0};
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
  std::vector<std::string> log_;
  bool divides_ = true;
  bool inside_ = false;
  bool nested_ = false;
};

// What this processor and operating system offer, tested here.
anyattn_cpu_facts read_cpu_facts();

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_HOST_H
