// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plugin file and as the linker's cache: an answer, every name inside the bytes, and no name longer than they are.
#include <functional>
#include <span>
#include <string_view>

#include "inspect/device_code.h"
#include "inspect/libraries.h"
#include "inspect/plugin_rules.h"
#include "security/harnesses.h"

namespace anyattn::fuzzing {

void run_elf(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)inspect::device_code(bytes);
  (void)inspect::read_linker_cache(bytes);
  inspect::ElfFile file;
  if (const auto finding = inspect::read_elf(bytes, file)) {
    require(!finding->reason.empty() && !finding->remedy.empty(), "a finding says what to do");
    return;
  }
  const auto expect_inside = [&](std::string_view name) {
    const auto* begin = reinterpret_cast<const uint8_t*>(name.data());
    require(name.empty() || (!std::less<>()(begin, data) && !std::less<>()(data + size, begin + name.size())),
            "a name lies in the file");
  };
  for (const auto* symbols : {&file.exports, &file.undefined})
    for (const inspect::Symbol& symbol : *symbols) expect_inside(symbol.name);
  for (const auto* versions : {&file.needed_versions, &file.defined_versions})
    for (const inspect::SymbolVersion& version : *versions) {
      expect_inside(version.name);
      expect_inside(version.file);
    }
  for (const std::string_view name : file.needed) expect_inside(name);
  for (const std::string_view name : {file.soname, file.rpath, file.runpath}) expect_inside(name);
  (void)inspect::check_plugin(file);
}

}  // namespace anyattn::fuzzing
