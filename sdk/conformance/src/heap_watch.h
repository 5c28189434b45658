// SPDX-License-Identifier: Apache-2.0
// Heap allocations of the whole process, of every thread, while a hot call of a plugin runs. Counted in programs that contain
// count_heap.cc, which takes malloc's place; elsewhere nothing is known. Included by the kit's session and host.
#ifndef ANYATTN_CONFORMANCE_HEAP_WATCH_H
#define ANYATTN_CONFORMANCE_HEAP_WATCH_H

#include <cstddef>
#include <cstdint>

namespace anyattn::conformance {

// Calls watched so far in a program that counts malloc; else 0.
uint64_t watched_calls();

struct HeapUse {
  uint64_t blocks = 0;
  uint64_t bytes = 0;
};

// From construction to use(): what was allocated by anybody but the kit. One at a time.
class HeapWatch {
 public:
  HeapWatch();
  ~HeapWatch();
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;
  HeapUse use() const;
};

// What this thread allocates while one lives is the kit's own: its host is called back inside a hot call.
class KitWork {
 public:
  KitWork();
  ~KitWork();
  KitWork(const KitWork&) = delete;
  KitWork& operator=(const KitWork&) = delete;
};

// For count_heap.cc. Allocates nothing.
void note_allocation(size_t bytes) noexcept;

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_HEAP_WATCH_H
