// SPDX-License-Identifier: Apache-2.0
// glibc's words for a file that does not open, sorted by cause. Texts as of glibc 2.36; an unknown one is passed on as it is.
#include <fmt/format.h>

#include <algorithm>

#include "loader/image.h"

namespace anyattn::loader {
namespace {

using discovery::Stage;

// The part before `mark`, or nothing.
std::string_view before(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view{} : text.substr(0, at);
}

std::string_view after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view{} : text.substr(at + mark.size());
}

Refusal missing_library(std::string_view library, const std::string& path, std::span<const std::string_view> needed) {
  const bool is_own = std::ranges::find(needed, library) != needed.end();
  const std::string folder = path.substr(0, path.find_last_of('/'));
  return {Stage::kOpen, ANYATTN_NOT_FOUND,
          fmt::format("the library {} is missing, which {} needs", library, is_own ? "the plugin" : "a library of the plugin"),
          fmt::format("install {}, or put it into {}/lib if the plugin brings its own libraries", library, folder)};
}

}  // namespace

Refusal explain_linker_text(std::string_view text, const std::string& path, std::span<const std::string_view> needed) {
  if (const auto library = before(text, ": cannot open shared object file"); !library.empty()) {
    if (library != path) return missing_library(library, path, needed);
    return {Stage::kOpen, ANYATTN_NOT_FOUND, fmt::format("the file cannot be opened: {}", text),
            "check the file and its folder"};
  }
  if (const auto symbol = after(text, "undefined symbol: "); !symbol.empty()) {
    return {Stage::kOpen, ANYATTN_ABI_MISMATCH,
            fmt::format("the symbol {} is undefined: neither the plugin nor a library it names has it ({})", symbol, text),
            "link the library that has it; of the host nothing can be linked, all of it comes through anyattn_host"};
  }
  if (const auto version = before(after(text, "version `"), "' not found"); !version.empty()) {
    return {Stage::kOpen, ANYATTN_ABI_MISMATCH,
            fmt::format("it needs the symbol version {}, which is newer than this system has ({})", version, text),
            "update the system's library, or install a build of the plugin for this system"};
  }
  if (text.find("wrong ELF class") != std::string_view::npos) {
    return {Stage::kOpen, ANYATTN_NOT_FOUND, fmt::format("a library of it is not built for this machine: {}", text),
            "install the 64-bit build of that library"};
  }
  if (text.find("static TLS block") != std::string_view::npos) {
    return {Stage::kOpen, ANYATTN_OUT_OF_MEMORY, fmt::format("no room is left for its thread-local variables: {}", text),
            "build it without -ftls-model=initial-exec"};
  }
  return {Stage::kOpen, ANYATTN_NOT_FOUND, fmt::format("the dynamic linker refuses it: {}", text),
          "ask the plugin's vendor, quoting this text"};
}

}  // namespace anyattn::loader
