// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entries over the harness that the first word of the command line names:
//   anyattn_fuzz elf -max_total_time=30 NEW_CORPUS corpus_elf
#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "security/harnesses.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t capacity);

namespace {

using anyattn::fuzzing::Harness;
using anyattn::fuzzing::kHarnesses;

const Harness* chosen = nullptr;

bool is_of_word(uint8_t byte) { return std::isalnum(byte) != 0 || byte == '.' || byte == '_'; }

// Changes the word that `which` falls on, or the next one; whatever follows moves.
size_t change_word(uint8_t* data, size_t size, size_t capacity, uint32_t which) {
  uint8_t* const end = data + size;
  uint8_t* begin = std::find_if(data + (size == 0 ? 0 : which % size), end, is_of_word);
  while (begin != data && begin != end && is_of_word(begin[-1])) --begin;
  uint8_t* const after = std::find_if_not(begin, end, is_of_word);
  if (begin == after) return LLVMFuzzerMutate(data, size, capacity);
  const std::vector<uint8_t> rest(after, end);
  const auto before = static_cast<size_t>(begin - data);
  const auto used = static_cast<size_t>(after - begin);
  const size_t word = LLVMFuzzerMutate(begin, used, std::min(used + 4, capacity - before - rest.size()));
  std::ranges::copy(rest, begin + word);
  return before + word + rest.size();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (const Harness& harness : kHarnesses)
    if (*argc > 1 && std::strcmp((*argv)[1], harness.name) == 0) chosen = &harness;
  if (!chosen) {
    std::fprintf(stderr, "usage: %s HARNESS [flags of libFuzzer] [folders]; harnesses:", (*argv)[0]);
    for (const Harness& harness : kHarnesses) std::fprintf(stderr, " %s", harness.name);
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  // libFuzzer reads the rest as its own.
  for (int i = 1; i + 1 < *argc; ++i) (*argv)[i] = (*argv)[i + 1];
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run(data, size);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned int seed) {
  const std::span<uint8_t> field = chosen->field && seed % 2 == 0 ? chosen->field(data, size, seed / 2) : std::span<uint8_t>();
  if (!field.empty()) {
    const size_t used = std::max<size_t>(strnlen(reinterpret_cast<const char*>(field.data()), field.size()), 1);
    const size_t left = LLVMFuzzerMutate(field.data(), used, field.size());
    std::ranges::fill(field.subspan(left), uint8_t{0});
  } else if (chosen->is_text && seed % 2 == 0) {
    size = change_word(data, size, capacity, seed / 2);
  } else {
    size = LLVMFuzzerMutate(data, size, capacity);
  }
  // Now and then it stays broken: the check itself is under test too.
  if (chosen->repair && seed % 16 != 0) chosen->repair(data, size);
  return size;
}
