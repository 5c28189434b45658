// SPDX-License-Identifier: Apache-2.0
// Counts what count_heap.cc of the conformance kit sees of malloc; operator new comes through it. Sanitizers bring their own malloc, so
// there it counts operator new instead.
#include "heap_count.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> count{0};
std::atomic<void*> kept{nullptr};
}  // namespace

namespace heap {
uint64_t allocations() { return count.load(std::memory_order_relaxed); }
void keep(void* memory) { kept = memory; }
}  // namespace heap

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

void* operator new(std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

#else

#include "heap_watch.h"

// Called by count_heap.cc of the kit, which takes the place of malloc's family.
void anyattn::conformance::note_allocation(size_t /*bytes*/) noexcept { count.fetch_add(1, std::memory_order_relaxed); }

#endif
