// SPDX-License-Identifier: Apache-2.0
// What a file needs, found or not before anything runs: libraries, symbol versions, symbols, names taken, device code.
#include "inspect/libraries.h"

#include <cstring>
#include <span>

#include "inspect/device_code.h"
#include "inspect/openmp.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::discovery::Found;
using anyattn::discovery::Stage;
using anyattn::inspect::Closure;
using anyattn::inspect::LibrarySearch;

Closure closure_of(LibrarySearch& search, const std::filesystem::path& path) {
  const std::string bytes = fakes::read_file(path);
  anyattn::inspect::ElfFile file;
  REQUIRE_FALSE(anyattn::inspect::read_elf(std::as_bytes(std::span(bytes)), file).has_value());
  return search.close_over(file, path.string());
}

LibrarySearch::Places places() { return {.library_path = {}, .loaded = {}}; }

std::string text_of(const Closure& closure) {
  return closure.finding ? closure.finding->reason + "; " + closure.finding->remedy : "";
}

// What discovery says of one fake when it looks for libraries.
std::string refusal_of(const std::vector<std::string>& names, LibrarySearch::Places where = places()) {
  LibrarySearch search(std::move(where));
  anyattn::discovery::Host host = fakes::host();
  host.libraries = &search;
  std::vector<std::filesystem::path> folders;
  for (const std::string& name : names) folders.push_back(fakes::folder(name));
  const Found found = anyattn::discovery::discover(fakes::config_of(folders), host);
  CHECK(found.candidates.size() + found.skips.size() == names.size());
  if (found.skips.empty()) return "";
  CHECK(found.skips[0].stage == Stage::kInspect);
  return anyattn::discovery::text(found.skips[0]);
}

}  // namespace

TEST_CASE("a_sound_plugin_finds_all_it_needs_and_says_where") {
  LibrarySearch search(places());
  const Closure closure = closure_of(search, fakes::file("good"));
  CHECK(text_of(closure) == "");
  bool has_libc = false;
  for (const auto& library : closure.libraries) {
    CAPTURE(library.name);
    CHECK(std::filesystem::exists(library.path));
    has_libc |= library.name == "libc.so.6";
  }
  CHECK(has_libc);
  CHECK(refusal_of({"good"}) == "");
}

TEST_CASE("a_missing_library_is_named_with_who_where_and_what_is_near") {
  fakes::check_parts(refusal_of({"missing_library"}),
                     {"anyattn_missing_library.so", "failed at inspect", "needs libfake_absent.so.0, which is not found", "lib",
                      "install libfake_absent.so.0"});
  // Another major of it lies in a folder that is searched.
  fakes::TempFolder folder;
  std::filesystem::copy_file(fakes::folder("link_time_only") / "libfake_absent.so.0", folder.path() / "libfake_absent.so.7");
  LibrarySearch::Places where = places();
  where.library_path = {folder.path().string()};
  fakes::check_parts(refusal_of({"missing_library"}, where), {"there is libfake_absent.so.7", folder.path().string()});
  // A file of the right name that is no library is said, too; a real one settles it.
  fakes::write_file(folder.path() / "libfake_absent.so.0", "no library");
  fakes::check_parts(refusal_of({"missing_library"}, where), {"libfake_absent.so.0 is no ELF file"});
  std::filesystem::remove(folder.path() / "libfake_absent.so.0");
  std::filesystem::copy_file(fakes::folder("link_time_only") / "libfake_absent.so.0", folder.path() / "libfake_absent.so.0");
  CHECK(refusal_of({"missing_library"}, where) == "");
}

TEST_CASE("an_older_library_than_was_linked_is_named_by_version") {
  fakes::check_parts(refusal_of({"new_version"}), {"needs FAKE_1.2 of libfake_versioned.so.1",
                                                   "new_version/lib/libfake_versioned.so.1", "has up to FAKE_1.0"});
}

TEST_CASE("a_symbol_that_no_library_has_is_named_before_anything_is_opened") {
  fakes::check_parts(refusal_of({"undefined_symbol"}),
                     {"uses the symbol anyattn_fake_nobody_has_this", "none of its libraries has", "-z defs"});
  CHECK_FALSE(fakes::is_mapped(fakes::file("undefined_symbol")));
}

TEST_CASE("one_library_name_with_two_contents_is_refused_for_the_later_plugin") {
  CHECK(refusal_of({"private_a"}) == "");
  const std::string text = refusal_of({"private_a", "private_b"});
  fakes::check_parts(text, {"anyattn_private_b.so", "libfake_private.so.3", "private_a/lib/", "private_b/lib/", "SONAME"});
  fakes::check_parts(refusal_of({"private_b", "private_a"}), {"anyattn_private_a.so"});
  // And against what the process holds already.
  LibrarySearch::Places where = places();
  where.loaded = {{"libfake_private.so.3", "/opt/engine/libfake_private.so.3"}};
  fakes::check_parts(refusal_of({"private_a"}, where), {"this process holds /opt/engine/libfake_private.so.3", "SONAME"});
}

TEST_CASE("two_openmp_runtimes_in_one_process_are_refused_for_the_later_plugin") {
  CHECK(refusal_of({"openmp_gnu"}) == "");
  fakes::check_parts(refusal_of({"openmp_gnu", "openmp_llvm"}),
                     {"anyattn_openmp_llvm.so", "needs the OpenMP runtime", "openmp_llvm/lib/libomp.so.5",
                      "anyattn_openmp_gnu.so brings", "openmp_gnu/lib/libgomp.so.1", "parallel_for"});
  fakes::check_parts(refusal_of({"openmp_llvm", "openmp_gnu"}), {"anyattn_openmp_gnu.so", "libgomp.so.1"});
  // And against what the engine holds, under the name that a wheel gave it.
  LibrarySearch::Places where = places();
  where.loaded = {{"libgomp-a34b3233.so.1", "/opt/engine/libgomp-a34b3233.so.1"}};
  fakes::check_parts(refusal_of({"openmp_gnu"}, where), {"this process brings /opt/engine/libgomp-a34b3233.so.1"});
  for (const char* name : {"libomptarget.so.15", "libompl.so.16", "libgompers.so"})
    CHECK_FALSE(anyattn::inspect::is_openmp_runtime(name));
  for (const char* name : {"libomp.so", "libiomp5.so", "libomp-7c3.so.5"}) CHECK(anyattn::inspect::is_openmp_runtime(name));
}

TEST_CASE("thread_memory_of_the_initial_exec_model_is_refused_with_its_size") {
  fakes::check_parts(refusal_of({"static_tls"}), {"8192 bytes of thread-local memory", "initial-exec", "global-dynamic"});
}

TEST_CASE("device_code_is_read_and_compared_with_what_the_sidecar_promises") {
  const std::string bytes = fakes::read_file(fakes::file("device_code"));
  const std::set<std::string> code = anyattn::inspect::device_code(std::as_bytes(std::span(bytes)));
  CHECK(code == std::set<std::string>{"sm_80", "compute_86"});
  CHECK(refusal_of({"device_code"}) == "");
  fakes::check_parts(refusal_of({"wrong_device_code"}), {"promises code for sm_75", "compute_86, sm_80"});
}

TEST_CASE("who_runs_which_device_code") {
  using anyattn::inspect::has_code_for;
  CHECK(has_code_for({"sm_80"}, "sm_80"));
  CHECK(has_code_for({"sm_80"}, "sm_86"));
  CHECK_FALSE(has_code_for({"sm_86"}, "sm_80"));
  CHECK_FALSE(has_code_for({"sm_80"}, "sm_90"));
  CHECK(has_code_for({"compute_80"}, "sm_90"));
  CHECK_FALSE(has_code_for({"compute_90"}, "sm_80"));
  CHECK(has_code_for({"sm_90a"}, "sm_90"));
  CHECK_FALSE(has_code_for({"sm_90a"}, "sm_100"));
  CHECK_FALSE(has_code_for({"compute_90a"}, "sm_100"));
  CHECK(has_code_for({"gfx942"}, "gfx942"));
  CHECK_FALSE(has_code_for({"gfx90a"}, "gfx942"));
  CHECK_FALSE(has_code_for({}, "sm_90"));
}

TEST_CASE("hip_bundles_say_their_architectures_and_damaged_ones_say_nothing") {
  std::string bundle = "xxxx__CLANG_OFFLOAD_BUNDLE__";
  const auto number = [&](uint64_t value) { bundle.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const std::vector<std::string> names = {"host-x86_64-unknown-linux--", "hipv4-amdgcn-amd-amdhsa--gfx942",
                                          "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"};
  number(names.size());
  for (const std::string& name : names) {
    number(0);
    number(0);
    number(name.size());
    bundle += name;
  }
  const auto code = [](const std::string& bytes) { return anyattn::inspect::device_code(std::as_bytes(std::span(bytes))); };
  CHECK(code(bundle) == std::set<std::string>{"gfx942", "gfx90a"});
  for (size_t size = 0; size < bundle.size(); ++size) CHECK(code(bundle.substr(0, size)).size() <= 2);
}

TEST_CASE("the_linkers_cache_is_read_and_damage_to_it_is_no_danger") {
  const std::string bytes = fakes::read_file("/etc/ld.so.cache");
  const auto read = [](const std::string& text) { return anyattn::inspect::read_linker_cache(std::as_bytes(std::span(text))); };
  if (!bytes.empty()) {
    const auto cache = read(bytes);
    REQUIRE(cache.contains("libc.so.6"));
    CHECK(std::filesystem::exists(cache.at("libc.so.6").front()));
  }
  for (size_t size = 0; size < bytes.size(); size += 97) read(bytes.substr(0, size));
  std::string damaged = bytes;
  for (size_t at = 20; at < damaged.size(); at += 131) damaged[at] = static_cast<char>(0xff);
  read(damaged);
  CHECK(read("").empty());
  CHECK(read("glibc-ld.so.cache1.1").empty());
}

TEST_CASE("needed_and_defined_versions_are_read") {
  const std::string bytes = fakes::read_file(fakes::file("new_version"));
  anyattn::inspect::ElfFile file;
  REQUIRE_FALSE(anyattn::inspect::read_elf(std::as_bytes(std::span(bytes)), file).has_value());
  CHECK(std::ranges::any_of(file.needed_versions, [](const auto& version) {
    return version.file == "libfake_versioned.so.1" && version.name == "FAKE_1.2";
  }));
  const std::string library = fakes::read_file(fakes::folder("link_time_only") / "libfake_versioned.so.1");
  REQUIRE_FALSE(anyattn::inspect::read_elf(std::as_bytes(std::span(library)), file).has_value());
  REQUIRE(file.defined_versions.size() == 2);
  CHECK(file.defined_versions[1].name == "FAKE_1.2");
}
