// SPDX-License-Identifier: Apache-2.0
#include "inspect/plugin_rules.h"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace anyattn::inspect {
namespace {

constexpr std::string_view kEntryPrefix = "anyattn_plugin_entry_v";
constexpr const char* kLinkRules = "link it with anyattn_add_plugin, or with the SDK's anyattn_plugin.map as version script";

bool is_entry(std::string_view name) {
  return name.size() > kEntryPrefix.size() && name.starts_with(kEntryPrefix) &&
         std::ranges::all_of(name.substr(kEntryPrefix.size()), [](char c) { return c >= '0' && c <= '9'; });
}

// At most five names, and how many more there are.
std::string list_names(const std::vector<std::string_view>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::optional<Finding> check_machine(const ElfFile& file) {
  if (file.machine != this_machine()) {
    return Finding{fmt::format("is built for {}, this host is {}", machine_name(file.machine), machine_name(this_machine())),
                   fmt::format("install the plugin's {} build", machine_name(this_machine()))};
  }
  if (file.type != ET_DYN) {
    return Finding{fmt::format("has ELF type {}, wanted a shared object ({})", file.type, ET_DYN),
                   "link the plugin with -shared"};
  }
  return std::nullopt;
}

std::optional<Finding> check_exports(const ElfFile& file, uint32_t abi_major) {
  const std::string wanted = fmt::format("{}{}", kEntryPrefix, abi_major);
  std::vector<std::string_view> entries;
  std::vector<std::string_view> others;
  std::vector<std::string_view> unique;
  for (const Symbol& symbol : file.exports) {
    (is_entry(symbol.name) ? entries : others).push_back(symbol.name);
    if (symbol.unique) unique.push_back(symbol.name);
  }
  const bool has_entry = std::ranges::find(entries, wanted) != entries.end();
  if (!has_entry && !entries.empty()) {
    return Finding{fmt::format("speaks another ABI major: it exports {}, this host calls {}", list_names(entries), wanted),
                   fmt::format("update the host, or install the plugin's build for ABI major {}", abi_major)};
  }
  if (!has_entry) {
    return Finding{fmt::format("does not export {}, so it is no plugin", wanted), kLinkRules};
  }
  if (!unique.empty()) {
    return Finding{fmt::format("exports unique symbols ({}), which all plugins of a process would share", list_names(unique)),
                   fmt::format("compile with -fno-gnu-unique and {}", kLinkRules)};
  }
  if (!others.empty()) {
    return Finding{fmt::format("exports more than {}: {}", wanted, list_names(others)), kLinkRules};
  }
  return std::nullopt;
}

// An empty or relative folder is one below the current one, where anybody may have put a library.
std::optional<Finding> check_search_path(const char* what, std::string_view folders) {
  for (size_t begin = 0; begin <= folders.size() && !folders.empty();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string_view folder = folders.substr(begin, end - begin);
    if (!folder.starts_with('/') && !folder.starts_with("$ORIGIN") && !folder.starts_with("${ORIGIN}")) {
      return Finding{
          fmt::format("has the {} '{}', whose element '{}' makes the linker look in the current folder", what, folders, folder),
          "link it with anyattn_add_plugin; elsewhere -rpath,'$ORIGIN/lib', with CMake BUILD_WITH_INSTALL_RPATH ON"};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

std::optional<Finding> check_process_safety(const ElfFile& file) {
  if (auto finding = check_search_path("RPATH", file.rpath)) return finding;
  if (auto finding = check_search_path("RUNPATH", file.runpath)) return finding;
  for (const std::string_view library : file.needed) {
    if (library.starts_with("libanyattn.so")) {
      return Finding{fmt::format("links the host library {}", library),
                     "link the SDK's headers only: everything of the host comes through anyattn_host"};
    }
  }
  if (file.executable_stack) {
    return Finding{"asks for an executable stack, which would weaken the whole process",
                   "link with -z noexecstack (an assembly source lacks a .note.GNU-stack section)"};
  }
  // What the linker keeps free in the block laid out at the start of the process; what others took of it is not known here.
  constexpr uint64_t kSpareBytes = 512;
  if (file.static_tls && file.tls_bytes > kSpareBytes) {
    return Finding{fmt::format("wants {} bytes of thread-local memory in the block laid out when the process started "
                               "(initial-exec model), where {} are kept free",
                               file.tls_bytes, kSpareBytes),
                   "compile with -ftls-model=global-dynamic, or keep less per thread"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> check_plugin(const ElfFile& file, uint32_t abi_major) {
  if (auto finding = check_machine(file)) return finding;
  if (auto finding = check_exports(file, abi_major)) return finding;
  return check_process_safety(file);
}

std::optional<Finding> inspect_plugin(std::span<const std::byte> bytes, uint32_t abi_major) {
  ElfFile file;
  if (auto finding = read_elf(bytes, file)) return finding;
  return check_plugin(file, abi_major);
}

}  // namespace anyattn::inspect
