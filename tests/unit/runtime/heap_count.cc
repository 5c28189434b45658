// SPDX-License-Identifier: Apache-2.0
// Takes the place of malloc's family in the test program; operator new comes through malloc. Sanitizers bring their own malloc,
// so there it counts operator new instead.
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

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t number, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

[[gnu::visibility("default")]] void* malloc(size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
[[gnu::visibility("default")]] void* calloc(size_t number, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(number, bytes);
}
[[gnu::visibility("default")]] void* realloc(void* memory, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
[[gnu::visibility("default")]] void* aligned_alloc(size_t alignment, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
[[gnu::visibility("default")]] int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;  // ENOMEM
}
}

#endif
