// SPDX-License-Identifier: Apache-2.0
// Every reader of bytes that strangers send, as a harness: it takes any bytes and wants an answer, never a crash.
// Included by the fuzzer's main, the replay tests and each harness. One file a harness; a new one is added to kHarnesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace anyattn::fuzzing {

struct Harness {
  const char* name;  // corpus_<name> holds its seeds
  void (*run)(const uint8_t* data, size_t size);
  bool is_text;  // one word of it may change and the rest still reads
  // Null where nothing guards the bytes. repair makes changed ones acceptable again (checksums); field is one of those places where
  // a change says most.
  void (*repair)(uint8_t* data, size_t size);
  std::span<uint8_t> (*field)(uint8_t* data, size_t size, uint32_t which);
};

void run_config(const uint8_t* data, size_t size);
void run_manifest(const uint8_t* data, size_t size);
void run_sidecar(const uint8_t* data, size_t size);
void run_archive(const uint8_t* data, size_t size);
void repair_archive(uint8_t* data, size_t size);
std::span<uint8_t> name_in_archive(uint8_t* data, size_t size, uint32_t which);
void run_elf(const uint8_t* data, size_t size);
void run_trace(const uint8_t* data, size_t size);
void run_profile(const uint8_t* data, size_t size);
void run_lock(const uint8_t* data, size_t size);

inline constexpr Harness kHarnesses[] = {
    {"config", run_config, true, nullptr, nullptr},
    {"manifest", run_manifest, true, nullptr, nullptr},
    {"sidecar", run_sidecar, true, nullptr, nullptr},
    {"elf", run_elf, false, nullptr, nullptr},
    {"archive", run_archive, false, repair_archive, name_in_archive},
    {"trace", run_trace, true, nullptr, nullptr},
    {"profile", run_profile, true, nullptr, nullptr},
    {"lock", run_lock, true, nullptr, nullptr},
};

// What must hold whatever the bytes; ends the process where it does not.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "harness: it does not hold that %s\n", what);
  std::abort();
}

}  // namespace anyattn::fuzzing
