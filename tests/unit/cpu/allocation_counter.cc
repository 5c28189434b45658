// SPDX-License-Identifier: Apache-2.0
#include "allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace anyattn::cpu_test {

void start_counting_allocations() {
  allocations = 0;
  counting = true;
}

int stop_counting_allocations() {
  counting = false;
  return allocations;
}

}  // namespace anyattn::cpu_test
