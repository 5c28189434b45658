// SPDX-License-Identifier: Apache-2.0
// Counts heap allocations of the whole process, every thread and library: malloc's family is wrapped in heap_count.cc.
#pragma once

#include <cstdint>

namespace heap {

uint64_t allocations();
// Keeps the compiler from removing an allocation that nobody reads.
void keep(void* memory);

}  // namespace heap
