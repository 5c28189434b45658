// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_facts.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace anyattn::device {
namespace {

// Register states that XCR0 says the operating system saves.
constexpr uint64_t kSavesAvx = 0x6;        // SSE and AVX
constexpr uint64_t kSavesAvx512 = 0xe6;    // and masks, upper halves, registers 16 to 31
constexpr uint64_t kSavesTiles = 0x60000;  // tile configuration and tile data

constexpr bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

#if defined(__x86_64__)
// Linux hands out tile data on request only; every later thread of the process has it then.
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// XGETBV by its bytes: the intrinsic needs -mxsave for the whole file.
uint64_t read_xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

CpuidWords read_words() {
  CpuidWords words;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
    words.leaf1_ecx = ecx;
    if (bit(ecx, 27)) words.xcr0 = read_xcr0();
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
    words.leaf7_edx = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) words.leaf7_1_eax = eax;
  }
  if (bit(words.leaf7_edx, 24) && (words.xcr0 & kSavesTiles) == kSavesTiles) words.amx_permitted = request_tiles();
  return words;
}
#endif

uint32_t cache_bytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<uint32_t>(std::min<long>(bytes, UINT32_MAX)) : 0;
}

anyattn_cpu_facts read_facts() {
  anyattn_cpu_facts facts{};
  facts.struct_size = ANYATTN_CPU_FACTS_SIZE;
#if defined(__x86_64__)
  facts.arch = ANYATTN_CPU_ARCH_X86_64;
  facts.isa = isa_of(read_words());
#elif defined(__aarch64__)
  facts.arch = ANYATTN_CPU_ARCH_AARCH64;
#else
  facts.arch = ANYATTN_CPU_ARCH_OTHER;
#endif
  facts.num_cores = allowed_cores();
  facts.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  facts.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  facts.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
  return facts;
}

std::string read_name() {
#if defined(__x86_64__)
  uint32_t words[12] = {};
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x80000000u, &eax, &ebx, &ecx, &edx) && eax >= 0x80000004u) {
    for (uint32_t leaf = 0; leaf < 3; ++leaf) {
      uint32_t* to = words + 4 * leaf;
      __get_cpuid(0x80000002u + leaf, to, to + 1, to + 2, to + 3);
    }
    std::string name(reinterpret_cast<const char*>(words), sizeof words);
    name.erase(std::find(name.begin(), name.end(), '\0'), name.end());
    const size_t first = name.find_first_not_of(' ');
    const size_t last = name.find_last_not_of(' ');
    if (first != std::string::npos) return name.substr(first, last - first + 1);
  }
  return "x86-64 processor";
#elif defined(__aarch64__)
  return "aarch64 processor";
#else
  return "processor";
#endif
}

}  // namespace

uint64_t isa_of(const CpuidWords& words) {
  const bool avx = (words.xcr0 & kSavesAvx) == kSavesAvx && bit(words.leaf1_ecx, 28);
  const bool avx512 = avx && (words.xcr0 & kSavesAvx512) == kSavesAvx512 && bit(words.leaf7_ebx, 16) &&  // F
                      bit(words.leaf7_ebx, 17) && bit(words.leaf7_ebx, 28) &&                            // DQ, CD
                      bit(words.leaf7_ebx, 30) && bit(words.leaf7_ebx, 31);                              // BW, VL
  const bool amx = (words.xcr0 & kSavesTiles) == kSavesTiles && words.amx_permitted && bit(words.leaf7_edx, 24);
  uint64_t isa = 0;
  const auto set = [&](bool present, uint64_t flag) { isa |= present ? flag : 0; };
  set(bit(words.leaf1_ecx, 20), ANYATTN_CPU_SSE4_2);
  set(avx && bit(words.leaf7_ebx, 5), ANYATTN_CPU_AVX2);
  set(avx && bit(words.leaf1_ecx, 12), ANYATTN_CPU_FMA);
  set(avx && bit(words.leaf1_ecx, 29), ANYATTN_CPU_F16C);
  set(avx512, ANYATTN_CPU_AVX512);
  set(avx512 && bit(words.leaf7_1_eax, 5), ANYATTN_CPU_AVX512_BF16);
  set(avx512 && bit(words.leaf7_ecx, 11), ANYATTN_CPU_AVX512_VNNI);
  set(avx512 && bit(words.leaf7_edx, 23), ANYATTN_CPU_AVX512_FP16);
  set(avx512 && bit(words.leaf7_ecx, 1), ANYATTN_CPU_AVX512_VBMI);
  set(amx, ANYATTN_CPU_AMX_TILE);
  set(amx && bit(words.leaf7_edx, 22), ANYATTN_CPU_AMX_BF16);
  set(amx && bit(words.leaf7_edx, 25), ANYATTN_CPU_AMX_INT8);
  return isa;
}

const anyattn_cpu_facts& cpu_facts() {
  static const anyattn_cpu_facts facts = read_facts();
  return facts;
}

const char* architecture_name(const anyattn_cpu_facts& facts) {
  constexpr uint64_t kLevel3 = ANYATTN_CPU_AVX2 | ANYATTN_CPU_FMA | ANYATTN_CPU_F16C;
  if (facts.arch == ANYATTN_CPU_ARCH_AARCH64) return "aarch64";
  if (facts.arch != ANYATTN_CPU_ARCH_X86_64) return "other";
  if ((facts.isa & kLevel3) == kLevel3) return (facts.isa & ANYATTN_CPU_AVX512) != 0 ? "x86-64-v4" : "x86-64-v3";
  return (facts.isa & ANYATTN_CPU_SSE4_2) != 0 ? "x86-64-v2" : "x86-64";
}

const std::string& cpu_name() {
  static const std::string name = read_name();
  return name;
}

uint32_t allowed_cores() {
  // The kernel's mask may be wider than cpu_set_t; EINVAL says so.
  for (int width = 1024; width <= 1 << 16; width *= 4) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(width) / sizeof(cpu_set_t) + 1);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) {
      return static_cast<uint32_t>(std::max(1, CPU_COUNT_S(bytes, mask.data())));
    }
  }
  return static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace anyattn::device
