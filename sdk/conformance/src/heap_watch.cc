// SPDX-License-Identifier: Apache-2.0
#include "heap_watch.h"

#include <atomic>

namespace anyattn::conformance {
namespace {

std::atomic<bool> counted{false};
std::atomic<bool> watching{false};
std::atomic<uint64_t> calls{0};
std::atomic<uint64_t> blocks{0};
std::atomic<uint64_t> bytes_in_all{0};
// Of the program, not of a library: needs no allocation of its own at its first use in a thread.
thread_local int kit_depth = 0;

}  // namespace

uint64_t watched_calls() { return counted.load(std::memory_order_relaxed) ? calls.load(std::memory_order_relaxed) : 0; }

HeapWatch::HeapWatch() {
  ++calls;
  blocks = 0;
  bytes_in_all = 0;
  watching = true;
}
HeapWatch::~HeapWatch() { watching = false; }
HeapUse HeapWatch::use() const { return {blocks.load(), bytes_in_all.load()}; }

KitWork::KitWork() { ++kit_depth; }
KitWork::~KitWork() { --kit_depth; }

void note_allocation(size_t bytes) noexcept {
  counted.store(true, std::memory_order_relaxed);
  if (!watching.load(std::memory_order_relaxed) || kit_depth > 0) return;
  blocks.fetch_add(1, std::memory_order_relaxed);
  bytes_in_all.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace anyattn::conformance
