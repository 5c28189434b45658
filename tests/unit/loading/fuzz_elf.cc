// SPDX-License-Identifier: Apache-2.0
#include "unit/loading/fuzz_elf.h"

#include <cstdlib>
#include <functional>
#include <span>

#include "inspect/device_code.h"
#include "inspect/libraries.h"
#include "inspect/plugin_rules.h"

namespace {

bool lies_inside(std::string_view name, const uint8_t* data, size_t size) {
  if (name.empty()) return true;
  const auto* begin = reinterpret_cast<const uint8_t*>(name.data());
  return !std::less<>()(begin, data) && !std::less<>()(data + size, begin + name.size());
}

}  // namespace

// Whatever the bytes: an answer, every name inside the bytes, and no name longer than they are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyattn::inspect::ElfFile file;
  const auto finding = anyattn::inspect::read_elf(std::as_bytes(std::span(data, size)), file);
  if (finding) {
    if (finding->reason.empty() || finding->remedy.empty()) std::abort();
    return 0;
  }
  for (const auto& symbol : file.exports)
    if (!lies_inside(symbol.name, data, size)) std::abort();
  for (const auto& symbol : file.undefined)
    if (!lies_inside(symbol.name, data, size)) std::abort();
  for (const auto* versions : {&file.needed_versions, &file.defined_versions})
    for (const auto& version : *versions)
      if (!lies_inside(version.name, data, size) || !lies_inside(version.file, data, size)) std::abort();
  (void)anyattn::inspect::device_code(std::as_bytes(std::span(data, size)));
  (void)anyattn::inspect::read_linker_cache(std::as_bytes(std::span(data, size)));
  for (const std::string_view name : file.needed)
    if (!lies_inside(name, data, size)) std::abort();
  (void)anyattn::inspect::check_plugin(file);
  return 0;
}
