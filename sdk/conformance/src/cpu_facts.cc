// SPDX-License-Identifier: Apache-2.0
// Instruction sets of this machine: what the processor has and the operating system saves.
#include <sched.h>
#include <unistd.h>

#include "host.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace anyattn::conformance {
namespace {

#if defined(__x86_64__)
struct Leaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  Leaf(uint32_t leaf, uint32_t subleaf) { __get_cpuid_count(leaf, subleaf, &a, &b, &c, &d); }
};

// Registers the operating system saves (XCR0).
uint64_t saved_registers(uint32_t leaf1_c) {
  if (!(leaf1_c & (1u << 27))) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux hands out tile data on request only; every later thread of the process has it then.
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

uint64_t read_isa() {
  constexpr uint64_t kAvx = 0x6, kAvx512 = 0xe6, kAmx = 0x60000;
  const Leaf one(1, 0), seven(7, 0), seven1(7, 1);
  const uint64_t saved = saved_registers(one.c);
  const auto has = [](uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; };
  const bool avx = (saved & kAvx) == kAvx && has(one.c, 28);
  const bool avx512 = avx && (saved & kAvx512) == kAvx512;
  const bool amx = avx512 && (saved & kAmx) == kAmx && has(seven.d, 24) && request_tiles();
  uint64_t isa = 0;
  const auto add = [&](bool present, uint64_t bit) { isa |= present ? bit : 0; };
  add(has(one.c, 20), ANYATTN_CPU_SSE4_2);
  add(avx && has(seven.b, 5), ANYATTN_CPU_AVX2);
  add(avx && has(one.c, 12), ANYATTN_CPU_FMA);
  add(avx && has(one.c, 29), ANYATTN_CPU_F16C);
  add(avx512 && has(seven.b, 16) && has(seven.b, 17) && has(seven.b, 28) && has(seven.b, 30) && has(seven.b, 31),
      ANYATTN_CPU_AVX512);
  add(avx512 && has(seven1.a, 5), ANYATTN_CPU_AVX512_BF16);
  add(avx512 && has(seven.c, 11), ANYATTN_CPU_AVX512_VNNI);
  add(avx512 && has(seven.d, 23), ANYATTN_CPU_AVX512_FP16);
  add(avx512 && has(seven.c, 1), ANYATTN_CPU_AVX512_VBMI);
  add(amx && has(seven.d, 24), ANYATTN_CPU_AMX_TILE);
  add(amx && has(seven.d, 22), ANYATTN_CPU_AMX_BF16);
  add(amx && has(seven.d, 25), ANYATTN_CPU_AMX_INT8);
  return isa;
}
#else
uint64_t read_isa() { return 0; }
#endif

uint32_t arch() {
#if defined(__x86_64__)
  return ANYATTN_CPU_ARCH_X86_64;
#elif defined(__aarch64__)
  return ANYATTN_CPU_ARCH_AARCH64;
#else
  return ANYATTN_CPU_ARCH_OTHER;
#endif
}

uint32_t cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<uint32_t>(CPU_COUNT(&set));
}

uint32_t cache_bytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<uint32_t>(bytes) : 0;
}

}  // namespace

anyattn_cpu_facts read_cpu_facts() {
  anyattn_cpu_facts facts{};
  facts.struct_size = ANYATTN_CPU_FACTS_SIZE;
  facts.arch = arch();
  facts.isa = read_isa();
  facts.num_cores = cores();
  facts.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  facts.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  facts.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
  return facts;
}

}  // namespace anyattn::conformance
