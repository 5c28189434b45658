// SPDX-License-Identifier: Apache-2.0
// Reads what matters of a 64-bit ELF shared object from its bytes: segments, needed libraries, dynamic symbols.
// Included by plugin_rules and tests. Every access is bounds-checked, section headers are not used, nothing is mapped or run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "inspect/finding.h"

namespace anyattn::inspect {

// Names are borrowed from the bytes that were read.
struct Symbol {
  std::string_view name;
  bool weak = false;
  bool unique = false;  // STB_GNU_UNIQUE: one object for the whole process, whatever the binding of the plugin
};

// A version of a symbol set: GLIBC_2.34 of libc.so.6.
struct SymbolVersion {
  std::string_view file;  // the library that must have it; empty where the file itself defines it
  std::string_view name;
};

struct ElfFile {
  uint16_t type = 0;     // ET_*
  uint16_t machine = 0;  // EM_*
  bool executable_stack = false;
  std::string_view soname;
  std::vector<std::string_view> needed;        // DT_NEEDED
  std::string_view rpath;                      // DT_RPATH
  std::string_view runpath;                    // DT_RUNPATH
  std::vector<Symbol> exports;                 // defined, visible, global or weak
  std::vector<Symbol> undefined;               // to be found in another object
  std::vector<SymbolVersion> needed_versions;  // weak ones left out
  std::vector<SymbolVersion> defined_versions;
  uint64_t tls_bytes = 0;   // thread-local memory
  bool static_tls = false;  // wants it in the block that is laid out when the process starts (initial-exec model)
};

// Fills `file`; answers what is wrong where the bytes are no complete 64-bit little-endian shared object. A segment that ends
// behind the bytes is such a finding, because opening the file would end the process with a bus error.
std::optional<Finding> read_elf(std::span<const std::byte> bytes, ElfFile& file);

// "x86-64", "aarch64", or "machine 243".
std::string machine_name(uint16_t machine);
uint16_t this_machine();  // EM_*

}  // namespace anyattn::inspect
