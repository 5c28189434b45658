// SPDX-License-Identifier: Apache-2.0
// Replays the fuzzed harness over damaged copies of a plugin: cut at every byte, and with bytes flipped.
#include <elf.h>

#include <cstring>
#include <memory>
#include <random>
#include <span>

#include "inspect/plugin_rules.h"
#include "security/harnesses.h"
#include "unit/loading/fakes.h"

namespace {

// A copy that ends where its memory ends, so that a sanitizer sees the first byte read too far.
void replay(const std::string& bytes, size_t size) {
  const auto exact = std::make_unique_for_overwrite<uint8_t[]>(size);
  std::memcpy(exact.get(), bytes.data(), size);
  anyattn::fuzzing::run_elf(exact.get(), size);
}

bool is_refused(const std::string& bytes, size_t size) {
  return anyattn::inspect::inspect_plugin(std::as_bytes(std::span(bytes.data(), size))).has_value();
}

// End of the last byte that is mapped when the file is opened.
size_t end_of_segments(const std::string& bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  size_t end = 0;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD) end = std::max(end, static_cast<size_t>(segment.p_offset + segment.p_filesz));
  }
  return end;
}

}  // namespace

TEST_CASE("a_file_cut_at_any_byte_is_refused_or_complete") {
  const std::string good = fakes::read_file(fakes::file("good"));
  const size_t end = end_of_segments(good);
  REQUIRE(end > 1000);
  REQUIRE(end <= good.size());
  size_t wrong = 0;
  // What follows the segments (section headers, names) is not needed to run; before their end every cut must show.
  for (size_t size = 0; size < end; ++size) {
    if (!is_refused(good, size)) ++wrong;
  }
  for (size_t size = end; size <= good.size(); size += 61) {
    if (is_refused(good, size)) ++wrong;
  }
  CHECK(wrong == 0);
  for (size_t size = 0; size <= good.size(); size += size < 8192 ? 1 : 61) replay(good, size);
}

TEST_CASE("flipped_bytes_never_crash_the_reader") {
  const std::string good = fakes::read_file(fakes::file("good"));
  std::mt19937 random(20240501);  // fixed: a failure can be repeated
  // Headers and tables lie in the first bytes: damage them more often than the code.
  const size_t tables = std::min<size_t>(good.size(), 4096);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = good;
    const unsigned flips = 1 + random() % 8;
    for (unsigned i = 0; i < flips; ++i) {
      const size_t range = random() % 4 == 0 ? bytes.size() : tables;
      bytes[random() % range] = static_cast<char>(random());
    }
    replay(bytes, bytes.size());
  }
}

TEST_CASE("each_byte_of_the_headers_may_hold_any_extreme") {
  const std::string good = fakes::read_file(fakes::file("good"));
  const size_t headers = sizeof(Elf64_Ehdr) + 16 * sizeof(Elf64_Phdr);
  for (size_t offset = 0; offset < headers; ++offset) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[offset] = static_cast<char>(value);
      replay(bytes, bytes.size());
    }
  }
}

// A chain that never ends and buckets that all point to it must not take quadratic time.
TEST_CASE("hash_table_of_lies_ends_in_linear_time") {
  const size_t num_words = 200000;
  std::vector<uint32_t> table(num_words, 0);  // no chain end anywhere
  const uint32_t num_buckets = 100000;
  table[0] = num_buckets;
  table[1] = 1;
  table[2] = 0;
  for (uint32_t i = 0; i < num_buckets; ++i) table[4 + i] = 1;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  const size_t dynamic_at = sizeof header + 2 * sizeof(Elf64_Phdr);
  const Elf64_Dyn dynamic[] = {{DT_GNU_HASH, {dynamic_at + 2 * sizeof(Elf64_Dyn)}}, {DT_NULL, {0}}};
  const size_t size = dynamic_at + sizeof dynamic + num_words * sizeof(uint32_t);
  Elf64_Phdr segments[2]{};
  segments[0].p_type = PT_LOAD;
  segments[0].p_filesz = segments[0].p_memsz = size;
  segments[1].p_type = PT_DYNAMIC;
  segments[1].p_vaddr = dynamic_at;
  std::string bytes(size, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, segments, sizeof segments);
  std::memcpy(bytes.data() + dynamic_at, dynamic, sizeof dynamic);
  std::memcpy(bytes.data() + dynamic_at + sizeof dynamic, table.data(), num_words * sizeof(uint32_t));
  const auto finding = anyattn::inspect::inspect_plugin(std::as_bytes(std::span(bytes.data(), bytes.size())));
  REQUIRE(finding.has_value());
  fakes::check_parts(finding->reason, {"is damaged", "GNU hash table"});
}
