// SPDX-License-Identifier: Apache-2.0
// operator new of this test program, which fails once, at the step that a test asks for. Included by the tests beside it.
#pragma once

#include <cstdint>
#include <functional>

namespace faults {

struct Outcome {
  bool failed = false;  // the wanted allocation was reached and std::bad_alloc thrown
  bool threw = false;   // and it came out of the call
};

// Runs `act` on this thread with its step-th allocation failing, counted from 1. Exceptions other than std::bad_alloc pass.
Outcome run_with_fault(uint64_t step, const std::function<void()>& act);

// Fails each allocation of `act` in turn. prepare() makes a fresh state, act() works on it, check(outcome) looks at what is
// left. Ends at the first step that act() does not reach; returns how many it had.
uint64_t at_every_step(const std::function<void()>& prepare, const std::function<void()>& act,
                       const std::function<void(const Outcome&)>& check);

}  // namespace faults
