// SPDX-License-Identifier: Apache-2.0
#include "isa.h"

namespace anyattn::cpu {
namespace {

struct Target {
  const Kernels* kernels;
  uint32_t arch;      // ANYATTN_CPU_ARCH_*, OTHER: every processor
  uint64_t required;  // ANYATTN_CPU_* bits
};

constexpr uint64_t kAvx2 = ANYATTN_CPU_SSE4_2 | ANYATTN_CPU_AVX2 | ANYATTN_CPU_FMA | ANYATTN_CPU_F16C;

// Best first.
constexpr Target kTargets[] = {
#if defined(__x86_64__)
    {&kKernelsAmxBf16, ANYATTN_CPU_ARCH_X86_64,
     kAvx2 | ANYATTN_CPU_AVX512 | ANYATTN_CPU_AVX512_BF16 | ANYATTN_CPU_AVX512_VBMI | ANYATTN_CPU_AMX_TILE |
         ANYATTN_CPU_AMX_BF16 | ANYATTN_CPU_AMX_INT8},
    {&kKernelsAvx512Bf16, ANYATTN_CPU_ARCH_X86_64, kAvx2 | ANYATTN_CPU_AVX512 | ANYATTN_CPU_AVX512_BF16},
    {&kKernelsAvx512, ANYATTN_CPU_ARCH_X86_64, kAvx2 | ANYATTN_CPU_AVX512},
    {&kKernelsAvx2, ANYATTN_CPU_ARCH_X86_64, kAvx2},
    {&kKernelsX86V2, ANYATTN_CPU_ARCH_X86_64, ANYATTN_CPU_SSE4_2},
#endif
    {&kKernelsPortable, ANYATTN_CPU_ARCH_OTHER, 0},
};

bool runs(const Target& target, const Host& host) {
  if (target.arch != ANYATTN_CPU_ARCH_OTHER && target.arch != host.cpu_arch()) return false;
  return (host.isa() & target.required) == target.required;
}

}  // namespace

const Kernels* choose_kernels(const Host& host, std::string_view option) {
  for (const Target& target : kTargets)
    if (runs(target, host) && (option == "auto" || option == target.kernels->name)) return target.kernels;
  return nullptr;
}

std::string runnable_isas(const Host& host) {
  std::string all;
  for (const Target& target : kTargets)
    if (runs(target, host)) all += (all.empty() ? "" : " | ") + std::string(target.kernels->name);
  return all;
}

}  // namespace anyattn::cpu
