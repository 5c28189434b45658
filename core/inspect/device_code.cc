// SPDX-License-Identifier: Apache-2.0
#include "inspect/device_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace anyattn::inspect {
namespace {

constexpr uint32_t kFatbinMark = 0xBA55ED50;
constexpr std::string_view kBundleMark = "__CLANG_OFFLOAD_BUNDLE__";
constexpr uint64_t kMaxEntries = 4096;

template <typename T>
std::optional<T> read(std::span<const std::byte> bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// As nvcc writes it: a mark with the size of all entries; each entry says its kind, its own two sizes and its architecture.
void read_fatbin(std::span<const std::byte> bytes, uint64_t offset, std::set<std::string>& code) {
  constexpr uint16_t kPtx = 1;
  constexpr uint16_t kMachineCode = 2;
  constexpr uint64_t kArchitectureSpecific = 0x100000;
  constexpr uint64_t kFamilySpecific = 0x200000;
  const auto version = read<uint16_t>(bytes, offset + 4);
  const auto header = read<uint16_t>(bytes, offset + 6);
  const auto size = read<uint64_t>(bytes, offset + 8);
  if (!version || !header || !size || *version != 1 || *size > bytes.size()) return;
  const uint64_t end = offset + *header + *size;
  uint64_t at = offset + *header;
  for (uint64_t i = 0; i < kMaxEntries && at < end; ++i) {
    const auto kind = read<uint16_t>(bytes, at);
    const auto entry_header = read<uint32_t>(bytes, at + 4);
    const auto entry_size = read<uint64_t>(bytes, at + 8);
    const auto architecture = read<uint32_t>(bytes, at + 28);
    const auto flags = read<uint64_t>(bytes, at + 40);
    if (!kind || !entry_header || !entry_size || !architecture || !flags) return;
    if (*entry_header < 48 || *entry_size > bytes.size() || *architecture < 10 || *architecture > 999) return;
    const char* suffix = (*flags & kArchitectureSpecific) != 0 ? "a" : (*flags & kFamilySpecific) != 0 ? "f" : "";
    if (*kind == kPtx) code.insert(fmt::format("compute_{}{}", *architecture, suffix));
    if (*kind == kMachineCode) code.insert(fmt::format("sm_{}{}", *architecture, suffix));
    at += *entry_header + *entry_size;
  }
}

// As clang writes it: the mark, a count, then for each entry offset, size and a name that ends in the architecture.
void read_bundle(std::span<const std::byte> bytes, uint64_t offset, std::set<std::string>& code) {
  uint64_t at = offset + kBundleMark.size();
  const auto count = read<uint64_t>(bytes, at);
  if (!count) return;
  at += sizeof(uint64_t);
  for (uint64_t i = 0; i < std::min(*count, kMaxEntries); ++i) {
    const auto length = read<uint64_t>(bytes, at + 16);
    if (!length || *length > 256 || at + 24 + *length > bytes.size()) return;
    const std::string_view name(reinterpret_cast<const char*>(bytes.data()) + at + 24, *length);
    const size_t dash = name.find("gfx");
    if (dash != std::string_view::npos) code.emplace(name.substr(dash, name.find(':', dash) - dash));
    at += 24 + *length;
  }
}

struct Architecture {
  std::string_view kind;  // sm, compute
  uint32_t number = 0;    // 90
  std::string_view suffix;
};

std::optional<Architecture> parse(std::string_view text) {
  const size_t bar = text.find('_');
  if (bar == std::string_view::npos) return std::nullopt;
  Architecture found;
  found.kind = text.substr(0, bar);
  const char* begin = text.data() + bar + 1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, found.number);
  if (error != std::errc()) return std::nullopt;
  found.suffix = {rest, static_cast<size_t>(end - rest)};
  return found;
}

}  // namespace

std::set<std::string> device_code(std::span<const std::byte> bytes) {
  std::set<std::string> code;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view fatbin(reinterpret_cast<const char*>(&kFatbinMark), sizeof kFatbinMark);
  for (size_t at = text.find(fatbin); at != std::string_view::npos; at = text.find(fatbin, at + 1))
    read_fatbin(bytes, at, code);
  for (size_t at = text.find(kBundleMark); at != std::string_view::npos; at = text.find(kBundleMark, at + 1))
    read_bundle(bytes, at, code);
  return code;
}

bool has_code_for(const std::set<std::string>& code, const std::string& architecture) {
  const std::optional<Architecture> device = parse(architecture);
  if (!device) return code.contains(architecture);
  for (const std::string& text : code) {
    const std::optional<Architecture> have = parse(text);
    if (!have) continue;
    if (have->suffix == "a") {
      if (have->number == device->number) return true;
    } else if (have->suffix == "f" || have->kind == "sm") {
      if (have->number / 10 == device->number / 10 && have->number <= device->number) return true;
    } else if (have->number <= device->number) {
      return true;
    }
  }
  return false;
}

}  // namespace anyattn::inspect
