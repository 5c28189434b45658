// SPDX-License-Identifier: Apache-2.0
// What a fake plugin counts, in memory of the test: the option `counters` holds its address as decimal text.
// Included by fakes and by tests that want to know how often a slot was called.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

struct FakeCounters {
  std::atomic<uint64_t> constructions{0};  // of the file's static objects, as seen by the latest entry call
  std::atomic<uint64_t> entries{0};
  std::atomic<uint64_t> supports{0};
  std::atomic<uint64_t> impls_created{0};
  std::atomic<uint64_t> impls_destroyed{0};
  std::atomic<uint64_t> warmups{0};
  std::atomic<uint64_t> metadata_created{0};
  std::atomic<uint64_t> metadata_destroyed{0};
  std::atomic<uint64_t> updates{0};
  std::atomic<uint64_t> block_table_updates{0};
  std::atomic<uint64_t> kv_cache_updates{0};
  std::atomic<uint64_t> forwards{0};  // MLA: of all three kinds
  std::atomic<uint64_t> merges{0};
  std::atomic<uint64_t> shutdowns{0};

  std::string option_text() const { return std::to_string(reinterpret_cast<uintptr_t>(this)); }
};
