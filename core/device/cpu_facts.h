// SPDX-License-Identifier: Apache-2.0
// What this processor is and what this process may use of it: instruction sets, caches, cores.
// Included by whoever fills a plugin's host table. An instruction set counts only when the operating system saves its
// registers.
#pragma once

#include <cstdint>
#include <string>

#include "anyattn/host.h"

namespace anyattn::device {

// The registers that decide, as read; apart from the reading so that processors we do not have can be tested.
struct CpuidWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;
  uint64_t xcr0 = 0;           // 0 where OSXSAVE is not set
  bool amx_permitted = false;  // the kernel granted tile data to this process
};

// ANYATTN_CPU_* bits of an x86-64 processor.
uint64_t isa_of(const CpuidWords& words);

// Facts of this process, read once; thread-safe.
const anyattn_cpu_facts& cpu_facts();

// "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64", "aarch64", "other".
const char* architecture_name(const anyattn_cpu_facts& facts);

// The processor's own name for people, read once.
const std::string& cpu_name();

// Cores the affinity mask of this process allows; at least 1.
uint32_t allowed_cores();

}  // namespace anyattn::device
