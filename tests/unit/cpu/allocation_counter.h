// SPDX-License-Identifier: Apache-2.0
// Counts calls of operator new in the whole process, plugins included, while a test asks for it.
#pragma once

namespace anyattn::cpu_test {

void start_counting_allocations();
int stop_counting_allocations();  // calls since the start, of every thread

}  // namespace anyattn::cpu_test
