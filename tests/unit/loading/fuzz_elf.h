// SPDX-License-Identifier: Apache-2.0
// Entry of a fuzzer over the ELF reader. Included by the replay test; a fuzzing build links fuzz_elf.cc alone:
//   clang++-19 -std=c++20 -g -fsanitize=fuzzer,address,undefined -Icore -Isdk/include -Itests
//     tests/unit/loading/fuzz_elf.cc core/inspect/elf.cc core/inspect/plugin_rules.cc -lfmt
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
