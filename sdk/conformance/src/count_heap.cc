// SPDX-License-Identifier: Apache-2.0
// Takes the place of malloc's family in a program that runs the kit; operator new of every C++ runtime comes through it.
// Empty under a sanitizer, which brings its own, and where the C library is not glibc.
#include <cerrno>
#include <cstddef>

#include "heap_watch.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

using anyattn::conformance::note_allocation;

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t number, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

[[gnu::visibility("default")]] void* malloc(size_t bytes) {
  note_allocation(bytes);
  return __libc_malloc(bytes);
}
[[gnu::visibility("default")]] void* calloc(size_t number, size_t bytes) {
  note_allocation(number * bytes);
  return __libc_calloc(number, bytes);
}
[[gnu::visibility("default")]] void* realloc(void* memory, size_t bytes) {
  note_allocation(bytes);
  return __libc_realloc(memory, bytes);
}
[[gnu::visibility("default")]] void* memalign(size_t alignment, size_t bytes) {
  note_allocation(bytes);
  return __libc_memalign(alignment, bytes);
}
[[gnu::visibility("default")]] void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
[[gnu::visibility("default")]] int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  void* const got = memalign(alignment, bytes);
  if (!got) return ENOMEM;
  *memory = got;
  return 0;
}
}

#endif
