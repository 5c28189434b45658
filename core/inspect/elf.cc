// SPDX-License-Identifier: Apache-2.0
#include "inspect/elf.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace anyattn::inspect {
namespace {

constexpr const char* kReinstall = "copy or install the file again";

// The file as bytes at offsets and, once the segments are known, as memory at addresses.
class Image {
 public:
  explicit Image(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t size() const { return bytes_.size(); }

  template <typename T>
  T at(uint64_t offset, const char* what) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) {
      throw Finding{fmt::format("is damaged: {} would lie at byte {} of {}", what, offset, bytes_.size()), kReinstall};
    }
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  void add_segment(const Elf64_Phdr& segment) { segments_.push_back(segment); }
  bool has_segments() const { return !segments_.empty(); }

  // The bytes from an address to the end of the file part of its segment.
  std::span<const std::byte> from_address(uint64_t address, const char* what) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz) {
        const uint64_t skip = address - segment.p_vaddr;
        return bytes_.subspan(segment.p_offset + skip, segment.p_filesz - skip);
      }
    }
    throw Finding{fmt::format("is damaged: {} at address {:#x} lies in no segment", what, address), kReinstall};
  }

 private:
  std::span<const std::byte> bytes_;
  std::vector<Elf64_Phdr> segments_;  // PT_LOAD; inside the file
};

template <typename T>
T read(std::span<const std::byte> bytes, uint64_t index, const char* what) {
  if (index >= bytes.size() / sizeof(T)) {
    throw Finding{fmt::format("is damaged: {} has no element {}", what, index), kReinstall};
  }
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof value);
  return value;
}

Elf64_Ehdr read_header(const Image& image) {
  if (image.size() == 0) throw Finding{"is empty", kReinstall};
  unsigned char ident[EI_NIDENT] = {};
  for (unsigned i = 0; i < EI_NIDENT && i < image.size(); ++i) ident[i] = image.at<unsigned char>(i, "the ELF mark");
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
    throw Finding{"is no ELF file: its first four bytes are not 7f 45 4c 46", "name a shared object built for this system"};
  }
  if (image.size() < sizeof(Elf64_Ehdr)) {
    throw Finding{fmt::format("is truncated: {} bytes do not hold an ELF header of {}", image.size(), sizeof(Elf64_Ehdr)),
                  kReinstall};
  }
  if (ident[EI_CLASS] != ELFCLASS64) {
    throw Finding{fmt::format("has ELF class {}, wanted 64-bit", ident[EI_CLASS] == ELFCLASS32 ? "32-bit" : "unknown"),
                  "install the 64-bit build of the plugin"};
  }
  if (ident[EI_DATA] != ELFDATA2LSB) {
    throw Finding{"is not little-endian", "install the little-endian build of the plugin"};
  }
  return image.at<Elf64_Ehdr>(0, "the ELF header");
}

struct Segments {
  uint64_t tls_bytes = 0;
  std::optional<Elf64_Phdr> dynamic;
  bool executable_stack = true;  // what the kernel assumes without a PT_GNU_STACK
};

Segments read_segments(Image& image, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr)) {
    throw Finding{fmt::format("is damaged: program headers of {} bytes, wanted {}", header.e_phentsize, sizeof(Elf64_Phdr)),
                  kReinstall};
  }
  Segments found;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    if (header.e_phoff > image.size()) {
      throw Finding{fmt::format("is truncated: program headers at byte {}, the file has {}", header.e_phoff, image.size()),
                    kReinstall};
    }
    const auto segment = image.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr), "a program header");
    if (segment.p_type == PT_GNU_STACK) found.executable_stack = (segment.p_flags & PF_X) != 0;
    if (segment.p_type == PT_DYNAMIC) found.dynamic = segment;
    if (segment.p_type == PT_TLS) found.tls_bytes = segment.p_memsz;
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > image.size() || image.size() - segment.p_offset < segment.p_filesz) {
      throw Finding{fmt::format("is truncated: a segment of {} bytes begins at byte {}, the file has {}", segment.p_filesz,
                                segment.p_offset, image.size()),
                    kReinstall};
    }
    if (segment.p_filesz > segment.p_memsz) {
      throw Finding{
          fmt::format("is damaged: a segment has {} bytes in the file and {} in memory", segment.p_filesz, segment.p_memsz),
          kReinstall};
    }
    image.add_segment(segment);
  }
  if (!image.has_segments() || !found.dynamic) {
    throw Finding{"has no dynamic section, so it is no shared object", "link the plugin with -shared"};
  }
  return found;
}

// Addresses and string offsets that the dynamic section names; 0 where it does not.
struct Dynamic {
  uint64_t strings = 0, string_bytes = 0, symbols = 0, hash = 0, gnu_hash = 0;
  uint64_t verneed = 0, num_verneed = 0, verdef = 0, num_verdef = 0, flags = 0;
  std::optional<uint64_t> soname, rpath, runpath;
  std::vector<uint64_t> needed;
};

Dynamic read_dynamic(const Image& image, const Elf64_Phdr& segment) {
  const auto bytes = image.from_address(segment.p_vaddr, "the dynamic section");
  Dynamic found;
  for (uint64_t i = 0;; ++i) {
    const auto entry = read<Elf64_Dyn>(bytes, i, "the dynamic section");
    const uint64_t value = entry.d_un.d_val;
    switch (entry.d_tag) {
      case DT_NULL:
        return found;
      case DT_STRTAB:
        found.strings = value;
        break;
      case DT_STRSZ:
        found.string_bytes = value;
        break;
      case DT_SYMTAB:
        found.symbols = value;
        break;
      case DT_HASH:
        found.hash = value;
        break;
      case DT_GNU_HASH:
        found.gnu_hash = value;
        break;
      case DT_SONAME:
        found.soname = value;
        break;
      case DT_RPATH:
        found.rpath = value;
        break;
      case DT_RUNPATH:
        found.runpath = value;
        break;
      case DT_VERNEED:
        found.verneed = value;
        break;
      case DT_VERNEEDNUM:
        found.num_verneed = value;
        break;
      case DT_VERDEF:
        found.verdef = value;
        break;
      case DT_VERDEFNUM:
        found.num_verdef = value;
        break;
      case DT_FLAGS:
        found.flags = value;
        break;
      case DT_NEEDED:
        found.needed.push_back(value);
        break;
      default:
        break;
    }
  }
}

class Strings {
 public:
  Strings(const Image& image, const Dynamic& dynamic) {
    if (dynamic.strings == 0) return;
    const auto bytes = image.from_address(dynamic.strings, "the string table");
    text_ = {reinterpret_cast<const char*>(bytes.data()), std::min<uint64_t>(bytes.size(), dynamic.string_bytes)};
  }

  std::string_view at(uint64_t offset) const {
    const size_t end = offset < text_.size() ? text_.find('\0', offset) : std::string_view::npos;
    if (end == std::string_view::npos) {
      throw Finding{fmt::format("is damaged: a name at byte {} of a string table of {}", offset, text_.size()), kReinstall};
    }
    return text_.substr(offset, end - offset);
  }

 private:
  std::string_view text_;
};

// Symbols that a GNU hash table covers: one past the end of the chain that starts at the highest bucket. Walking that one
// chain only keeps the time linear whatever the buckets say.
uint64_t count_gnu_hash(const Image& image, uint64_t address) {
  constexpr const char* kWhat = "the GNU hash table";
  const auto words = image.from_address(address, kWhat);
  const uint64_t num_buckets = read<uint32_t>(words, 0, kWhat);
  const uint64_t first_symbol = read<uint32_t>(words, 1, kWhat);
  const uint64_t bloom_words = read<uint32_t>(words, 2, kWhat);
  const uint64_t buckets = 4 + 2 * bloom_words;
  const uint64_t chains = buckets + num_buckets;
  uint64_t last = 0;
  for (uint64_t i = 0; i < num_buckets; ++i) last = std::max<uint64_t>(last, read<uint32_t>(words, buckets + i, kWhat));
  if (last < first_symbol) return first_symbol;  // every bucket is empty
  while ((read<uint32_t>(words, chains + last - first_symbol, kWhat) & 1u) == 0) ++last;
  return last + 1;
}

uint64_t count_symbols(const Image& image, const Dynamic& dynamic) {
  if (dynamic.hash != 0) return read<uint32_t>(image.from_address(dynamic.hash, "the hash table"), 1, "the hash table");
  if (dynamic.gnu_hash != 0) return count_gnu_hash(image, dynamic.gnu_hash);
  throw Finding{"has no hash table of its symbols, so nothing in it can be found", "link the plugin with --hash-style=gnu"};
}

void read_symbols(const Image& image, const Dynamic& dynamic, const Strings& strings, ElfFile& file) {
  const uint64_t count = count_symbols(image, dynamic);
  if (count <= 1) return;
  const auto bytes = image.from_address(dynamic.symbols, "the symbol table");
  for (uint64_t i = 1; i < count; ++i) {
    const auto symbol = read<Elf64_Sym>(bytes, i, "the symbol table");
    const unsigned binding = ELF64_ST_BIND(symbol.st_info);
    const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    if (binding == STB_LOCAL) continue;
    const Symbol entry{strings.at(symbol.st_name), binding == STB_WEAK, binding == STB_GNU_UNIQUE};
    if (symbol.st_shndx == SHN_UNDEF) {
      file.undefined.push_back(entry);
    } else if (visibility == STV_DEFAULT || visibility == STV_PROTECTED) {
      file.exports.push_back(entry);
    }
  }
}

// One struct at a byte offset of a table whose elements are chained by offsets.
template <typename T>
T read_at(std::span<const std::byte> bytes, uint64_t offset, const char* what) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) {
    throw Finding{fmt::format("is damaged: {} has nothing at byte {}", what, offset), kReinstall};
  }
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// More is no table of versions, and chains may run in circles.
constexpr uint64_t kMaxVersions = 4096;

void read_needed_versions(const Image& image, const Dynamic& dynamic, const Strings& strings, ElfFile& file) {
  constexpr const char* kWhat = "the table of needed versions";
  if (dynamic.verneed == 0) return;
  const auto bytes = image.from_address(dynamic.verneed, kWhat);
  uint64_t at = 0;
  for (uint64_t i = 0; i < std::min(dynamic.num_verneed, kMaxVersions); ++i) {
    const auto need = read_at<Elf64_Verneed>(bytes, at, kWhat);
    uint64_t aux_at = at + need.vn_aux;
    for (uint64_t j = 0; j < need.vn_cnt && file.needed_versions.size() < kMaxVersions; ++j) {
      const auto aux = read_at<Elf64_Vernaux>(bytes, aux_at, kWhat);
      if ((aux.vna_flags & VER_FLG_WEAK) == 0)
        file.needed_versions.push_back({strings.at(need.vn_file), strings.at(aux.vna_name)});
      if (aux.vna_next == 0) break;
      aux_at += aux.vna_next;
    }
    if (need.vn_next == 0) break;
    at += need.vn_next;
  }
}

void read_defined_versions(const Image& image, const Dynamic& dynamic, const Strings& strings, ElfFile& file) {
  constexpr const char* kWhat = "the table of defined versions";
  if (dynamic.verdef == 0) return;
  const auto bytes = image.from_address(dynamic.verdef, kWhat);
  uint64_t at = 0;
  for (uint64_t i = 0; i < std::min(dynamic.num_verdef, kMaxVersions); ++i) {
    const auto definition = read_at<Elf64_Verdef>(bytes, at, kWhat);
    const auto name = read_at<Elf64_Verdaux>(bytes, at + definition.vd_aux, kWhat);
    if ((definition.vd_flags & VER_FLG_BASE) == 0) file.defined_versions.push_back({{}, strings.at(name.vda_name)});
    if (definition.vd_next == 0) break;
    at += definition.vd_next;
  }
}

}  // namespace

std::optional<Finding> read_elf(std::span<const std::byte> bytes, ElfFile& file) {
  file = {};
  try {
    Image image(bytes);
    const Elf64_Ehdr header = read_header(image);
    file.type = header.e_type;
    file.machine = header.e_machine;
    const Segments segments = read_segments(image, header);
    file.executable_stack = segments.executable_stack;
    const Dynamic dynamic = read_dynamic(image, *segments.dynamic);
    const Strings strings(image, dynamic);
    if (dynamic.soname) file.soname = strings.at(*dynamic.soname);
    if (dynamic.rpath) file.rpath = strings.at(*dynamic.rpath);
    if (dynamic.runpath) file.runpath = strings.at(*dynamic.runpath);
    for (const uint64_t offset : dynamic.needed) file.needed.push_back(strings.at(offset));
    file.tls_bytes = segments.tls_bytes;
    file.static_tls = (dynamic.flags & DF_STATIC_TLS) != 0;
    read_symbols(image, dynamic, strings, file);
    read_needed_versions(image, dynamic, strings, file);
    read_defined_versions(image, dynamic, strings, file);
    return std::nullopt;
  } catch (const Finding& finding) {
    return finding;
  }
}

uint16_t this_machine() {
#if defined(__x86_64__)
  return EM_X86_64;
#elif defined(__aarch64__)
  return EM_AARCH64;
#else
#error "add this machine's ELF number"
#endif
}

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "x86";
    case EM_AARCH64:
      return "aarch64";
    case EM_ARM:
      return "arm";
    case EM_PPC64:
      return "ppc64";
    default:
      return fmt::format("machine {}", machine);
  }
}

}  // namespace anyattn::inspect
