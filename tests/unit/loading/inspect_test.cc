// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <cstring>
#include <span>

#include "inspect/plugin_rules.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::inspect::ElfFile;
using anyattn::inspect::Finding;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The finding as one text, "" where there is none.
std::string finding_of(const std::string& bytes) {
  const std::optional<Finding> finding = anyattn::inspect::inspect_plugin(bytes_of(bytes));
  return finding ? finding->reason + "; " + finding->remedy : "";
}
std::string finding_of_fake(const std::string& name) { return finding_of(fakes::read_file(fakes::file(name))); }

template <typename T>
std::string patched(std::string bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

}  // namespace

TEST_CASE("reader_lists_libraries_symbols_and_paths") {
  const std::string bytes = fakes::read_file(fakes::file("missing_library"));
  ElfFile file;
  REQUIRE_FALSE(anyattn::inspect::read_elf(bytes_of(bytes), file).has_value());
  CHECK(file.type == ET_DYN);
  CHECK(std::ranges::find(file.needed, "libfake_absent.so.0") != file.needed.end());
  CHECK(std::ranges::find(file.needed, "libc.so.6") != file.needed.end());
  CHECK_FALSE(file.executable_stack);
  REQUIRE(file.exports.size() == 1);
  CHECK(file.exports[0].name == "anyattn_plugin_entry_v0");
  const auto is_undefined = [&](std::string_view name) {
    return std::ranges::any_of(file.undefined, [&](const auto& symbol) { return symbol.name == name; });
  };
  CHECK(is_undefined("anyattn_fake_library_function"));
  CHECK_FALSE(is_undefined("anyattn_plugin_entry_v0"));

  const std::string library = fakes::read_file(fakes::folder("link_time_only") / "libfake_absent.so.0");
  REQUIRE_FALSE(anyattn::inspect::read_elf(bytes_of(library), file).has_value());
  CHECK(file.soname == "libfake_absent.so.0");
}

TEST_CASE("reader_knows_rpath_as_link_rules_set_it") {
  const std::string bytes = fakes::read_file(fakes::file("good"));
  ElfFile file;
  REQUIRE_FALSE(anyattn::inspect::read_elf(bytes_of(bytes), file).has_value());
  CHECK(file.rpath == "$ORIGIN/lib");
  CHECK(file.runpath.empty());
}

TEST_CASE("reader_works_on_a_stripped_file_without_section_headers") {
  std::string bytes = fakes::read_file(fakes::file("good"));
  // No section headers, as after a rough strip: nothing may depend on them.
  bytes = patched(bytes, offsetof(Elf64_Ehdr, e_shoff), uint64_t{0});
  bytes = patched(bytes, offsetof(Elf64_Ehdr, e_shnum), uint16_t{0});
  CHECK(finding_of(bytes) == "");
}

TEST_CASE("abi_1_exports_the_entry_and_nothing_else") {
  for (const char* name : {"good", "noop", "mla", "older_minor", "newer_minor", "collision_a", "thrower"}) {
    CAPTURE(name);
    CHECK(finding_of_fake(name) == "");
  }
  fakes::check_parts(finding_of_fake("no_entry"),
                     {"does not export anyattn_plugin_entry_v0", "is no plugin", "anyattn_add_plugin"});
  fakes::check_parts(finding_of_fake("wrong_major"),
                     {"speaks another ABI major", "exports anyattn_plugin_entry_v7", "this host calls anyattn_plugin_entry_v0",
                      "update the host", "for ABI major 0"});
  fakes::check_parts(finding_of_fake("extra_export"),
                     {"exports more than anyattn_plugin_entry_v0: anyattn_fake_extra", "version script"});
  fakes::check_parts(finding_of_fake("unique_export"),
                     {"unique symbols", "AnyattnFakeUnique", "-fno-gnu-unique", "version script"});
}

TEST_CASE("a_plugin_that_would_look_in_the_current_folder_is_refused") {
  const std::string good = fakes::read_file(fakes::file("good"));
  ElfFile file;
  REQUIRE_FALSE(anyattn::inspect::read_elf(bytes_of(good), file).has_value());
  for (const char* sound : {"", "$ORIGIN/lib", "${ORIGIN}/lib:/opt/acme/lib", "/a:/b"}) {
    CAPTURE(sound);
    file.rpath = sound;
    CHECK_FALSE(anyattn::inspect::check_plugin(file).has_value());
  }
  for (const char* path : {"$ORIGIN/lib:", ":$ORIGIN/lib", "/a::/b", "lib", "/a:../b", ":"}) {
    CAPTURE(path);
    for (const bool is_runpath : {false, true}) {
      file.rpath = is_runpath ? "" : path;
      file.runpath = is_runpath ? path : "";
      const auto finding = anyattn::inspect::check_plugin(file);
      REQUIRE(finding.has_value());
      fakes::check_parts(
          finding->reason + "; " + finding->remedy,
          {is_runpath ? "RUNPATH" : "the RPATH", path, "the current folder", "$ORIGIN/lib", "BUILD_WITH_INSTALL_RPATH"});
    }
    file.runpath = "";
  }
}

TEST_CASE("extra_exports_are_refused_with_their_names") {
  ElfFile file;
  file.type = ET_DYN;
  const std::string good = fakes::read_file(fakes::file("good"));
  ElfFile real;
  REQUIRE_FALSE(anyattn::inspect::read_elf(bytes_of(good), real).has_value());
  file.machine = real.machine;
  file.exports = {{"anyattn_plugin_entry_v0"}, {"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"g"}};
  const auto finding = anyattn::inspect::check_plugin(file);
  REQUIRE(finding.has_value());
  fakes::check_parts(finding->reason, {"exports more than anyattn_plugin_entry_v0: ", "a, b, c, d, e and 2 more"});

  // Entries of two majors may stand side by side: old and new hosts each find theirs.
  file.exports = {{"anyattn_plugin_entry_v0"}, {"anyattn_plugin_entry_v1"}};
  CHECK_FALSE(anyattn::inspect::check_plugin(file, 0).has_value());
  CHECK_FALSE(anyattn::inspect::check_plugin(file, 1).has_value());
  CHECK(anyattn::inspect::check_plugin(file, 2).has_value());
  // A longer name is not an entry.
  file.exports = {{"anyattn_plugin_entry_v0"}, {"anyattn_plugin_entry_v0_helper"}};
  CHECK(anyattn::inspect::check_plugin(file).has_value());
}

TEST_CASE("executable_stack_and_host_library_are_refused") {
  fakes::check_parts(finding_of_fake("executable_stack"), {"executable stack", "noexecstack"});
  fakes::check_parts(finding_of_fake("links_host"), {"links the host library libanyattn.so.0", "anyattn_host"});
}

TEST_CASE("damaged_headers_give_the_reason") {
  const std::string good = fakes::read_file(fakes::file("good"));
  struct Row {
    const char* what;
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"empty", "", {"is empty", "install the file again"}},
      {"text", "#!/bin/sh\necho no plugin\n", {"is no ELF file", "7f 45 4c 46"}},
      {"three bytes", std::string(ELFMAG, 3), {"is no ELF file"}},
      {"mark only", good.substr(0, 16), {"is truncated", "16 bytes", "ELF header"}},
      {"cut", good.substr(0, fakes::kCutBytes), {"is truncated", std::to_string(fakes::kCutBytes), "install the file again"}},
      {"class", patched(good, EI_CLASS, char{ELFCLASS32}), {"ELF class 32-bit", "wanted 64-bit"}},
      {"class 9", patched(good, EI_CLASS, char{9}), {"ELF class unknown", "wanted 64-bit"}},
      {"order", patched(good, EI_DATA, char{ELFDATA2MSB}), {"not little-endian"}},
      {"machine", patched(good, offsetof(Elf64_Ehdr, e_machine), uint16_t{EM_PPC64}), {"is built for ppc64", "this host is"}},
      {"type",
       patched(good, offsetof(Elf64_Ehdr, e_type), uint16_t{ET_REL}),
       {"ELF type 1", "wanted a shared object", "-shared"}},
      {"no headers", patched(good, offsetof(Elf64_Ehdr, e_phnum), uint16_t{0}), {"no dynamic section"}},
      {"header size",
       patched(good, offsetof(Elf64_Ehdr, e_phentsize), uint16_t{8}),
       {"is damaged", "program headers of 8 bytes"}},
      {"headers behind", patched(good, offsetof(Elf64_Ehdr, e_phoff), uint64_t{1} << 60), {"is truncated", "program headers"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    fakes::check_parts(finding_of(row.bytes), row.parts);
  }
}
