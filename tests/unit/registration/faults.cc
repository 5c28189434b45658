// SPDX-License-Identifier: Apache-2.0
#include "unit/registration/faults.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local uint64_t steps_left = 0;  // 0: nothing is to fail
thread_local bool has_failed = false;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (steps_left > 0 && --steps_left == 0) {
    has_failed = true;
    throw std::bad_alloc();
  }
  void* memory = alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__
                     ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                     : std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// A sanitizer has one of its own, which would not be freed by what stands below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace faults {

Outcome run_with_fault(uint64_t step, const std::function<void()>& act) {
  Outcome outcome;
  has_failed = false;
  steps_left = step;
  try {
    act();
  } catch (const std::bad_alloc&) {
    outcome.threw = true;
  } catch (...) {
    steps_left = 0;
    throw;
  }
  steps_left = 0;
  outcome.failed = has_failed;
  return outcome;
}

uint64_t at_every_step(const std::function<void()>& prepare, const std::function<void()>& act,
                       const std::function<void(const Outcome&)>& check) {
  constexpr uint64_t kTooMany = 100000;
  for (uint64_t step = 1; step < kTooMany; ++step) {
    CAPTURE(step);
    prepare();
    const Outcome outcome = run_with_fault(step, act);
    check(outcome);
    if (!outcome.failed) return step - 1;
  }
  FAIL("the call never ends");
  return 0;
}

}  // namespace faults
