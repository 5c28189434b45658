// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "config/names.h"
#include "device/cpu_facts.h"

namespace {

using anyattn::device::CpuidWords;
using anyattn::device::isa_of;

constexpr uint64_t kSavesAvx = 0x7;
constexpr uint64_t kSavesAvx512 = 0xe7;
constexpr uint64_t kSavesTiles = 0x602e7;

// A processor with everything, under an operating system that saves what `xcr0` says.
CpuidWords everything(uint64_t xcr0, bool amx_permitted) {
  CpuidWords words;
  words.leaf1_ecx = words.leaf7_ebx = words.leaf7_ecx = words.leaf7_edx = words.leaf7_1_eax = ~0u;
  words.xcr0 = xcr0;
  words.amx_permitted = amx_permitted;
  return words;
}

}  // namespace

TEST_CASE("cpu_facts_count_an_instruction_set_only_when_the_system_saves_it") {
  constexpr uint64_t kAmx = ANYATTN_CPU_AMX_TILE | ANYATTN_CPU_AMX_BF16 | ANYATTN_CPU_AMX_INT8;
  constexpr uint64_t kAvx2 = ANYATTN_CPU_SSE4_2 | ANYATTN_CPU_AVX2 | ANYATTN_CPU_FMA | ANYATTN_CPU_F16C;
  constexpr uint64_t kAvx512 = kAvx2 | ANYATTN_CPU_AVX512 | ANYATTN_CPU_AVX512_BF16 | ANYATTN_CPU_AVX512_VNNI |
                               ANYATTN_CPU_AVX512_FP16 | ANYATTN_CPU_AVX512_VBMI;

  CHECK(isa_of(everything(0, false)) == ANYATTN_CPU_SSE4_2);
  CHECK(isa_of(everything(kSavesAvx, false)) == kAvx2);
  CHECK(isa_of(everything(kSavesAvx512, false)) == kAvx512);
  CHECK(isa_of(everything(kSavesTiles, false)) == kAvx512);  // the kernel was asked for tiles and said no
  CHECK(isa_of(everything(kSavesTiles, true)) == (kAvx512 | kAmx));
  CHECK(isa_of(everything(kSavesAvx512, true)) == kAvx512);
}

TEST_CASE("cpu_facts_want_all_five_parts_of_avx512") {
  for (const int part : {16, 17, 28, 30, 31}) {
    CpuidWords words = everything(kSavesAvx512, false);
    words.leaf7_ebx &= ~(1u << part);
    CAPTURE(part);
    CHECK((isa_of(words) & (ANYATTN_CPU_AVX512 | ANYATTN_CPU_AVX512_BF16 | ANYATTN_CPU_AVX512_VNNI)) == 0);
  }
}

TEST_CASE("cpu_facts_agree_with_the_kernel") {
  const anyattn_cpu_facts& facts = anyattn::device::cpu_facts();
  CHECK(facts.struct_size == ANYATTN_CPU_FACTS_SIZE);
  CHECK(facts.num_cores >= 1);
  CHECK(facts.num_cores == anyattn::device::allowed_cores());
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  std::stringstream text;
  text << file.rdbuf();
  // The kernel hides flags whose state it does not save, as we do.
  const struct {
    const char* flag;
    uint64_t bit;
  } flags[] = {{" avx2 ", ANYATTN_CPU_AVX2},
               {" fma ", ANYATTN_CPU_FMA},
               {" f16c ", ANYATTN_CPU_F16C},
               {" avx512bw ", ANYATTN_CPU_AVX512},
               {" avx512_bf16 ", ANYATTN_CPU_AVX512_BF16},
               {" avx512_vnni ", ANYATTN_CPU_AVX512_VNNI},
               {" avx512vbmi ", ANYATTN_CPU_AVX512_VBMI}};
  for (const auto& flag : flags) {
    CAPTURE(flag.flag);
    CHECK((text.str().find(flag.flag) != std::string::npos) == ((facts.isa & flag.bit) != 0));
  }
  CHECK(std::strncmp(anyattn::device::architecture_name(facts), "x86-64", 6) == 0);
#endif
}

TEST_CASE("architecture_name_follows_the_instruction_sets") {
  anyattn_cpu_facts facts{};
  facts.arch = ANYATTN_CPU_ARCH_X86_64;
  const auto name = [&](uint64_t isa) {
    facts.isa = isa;
    return std::string(anyattn::device::architecture_name(facts));
  };
  constexpr uint64_t kLevel3 = ANYATTN_CPU_SSE4_2 | ANYATTN_CPU_AVX2 | ANYATTN_CPU_FMA | ANYATTN_CPU_F16C;
  CHECK(name(0) == "x86-64");
  CHECK(name(ANYATTN_CPU_SSE4_2) == "x86-64-v2");
  CHECK(name(kLevel3) == "x86-64-v3");
  CHECK(name(kLevel3 | ANYATTN_CPU_AVX512) == "x86-64-v4");
  CHECK(name(ANYATTN_CPU_SSE4_2 | ANYATTN_CPU_AVX512) == "x86-64-v2");
  facts.arch = ANYATTN_CPU_ARCH_AARCH64;
  CHECK(name(0) == "aarch64");
}
