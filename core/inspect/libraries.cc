// SPDX-License-Identifier: Apache-2.0
#include "inspect/libraries.h"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace anyattn::inspect {
namespace {

namespace fs = std::filesystem;

// A library larger than this (a vendor's kernels) is found, but its symbols are not read: that would cost more than it tells.
constexpr uint64_t kMaxRead = uint64_t{64} << 20;

std::vector<std::byte> read_bytes(const std::string& path, uint64_t limit) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream) return {};
  const auto size = std::min<uint64_t>(static_cast<uint64_t>(std::max<std::streamoff>(stream.tellg(), 0)), limit);
  std::vector<std::byte> bytes(size);
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  return bytes;
}

}  // namespace

bool is_same_library(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::error_code error;
  const uint64_t size = fs::file_size(a, error);
  return fs::path(a).filename() == fs::path(b).filename() && !error && size == fs::file_size(b, error) && !error &&
         read_bytes(a, size) == read_bytes(b, size);
}

namespace {

std::string canonical_or_empty(const std::string& path) {
  std::error_code error;
  const std::string result = fs::canonical(path, error).string();
  return error ? std::string() : result;
}

// "a:$ORIGIN/lib" as folders. An empty element means the current folder to the linker and is left out here.
std::vector<std::string> folders_of(const std::string& list, const std::string& file) {
  std::vector<std::string> folders;
  const std::string origin = fs::path(file).parent_path().string();
  for (size_t begin = 0; begin <= list.size() && !list.empty();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    std::string folder = list.substr(begin, end - begin);
    for (const char* word : {"${ORIGIN}", "$ORIGIN"}) {
      const size_t at = folder.find(word);
      if (at != std::string::npos) folder.replace(at, std::strlen(word), origin);
    }
    if (!folder.empty()) folders.push_back(fs::path(folder).lexically_normal().string());
    begin = end + 1;
  }
  return folders;
}

// "libcudart" of libcudart.so.12: what another version of the library shares.
std::string stem_of(const std::string& name) { return name.substr(0, name.find(".so")); }

bool is_of_sanitizer(std::string_view symbol) {
  for (const std::string_view prefix : {"__asan", "__tsan", "__ubsan", "__sanitizer", "__lsan", "__interceptor", "__sancov"})
    if (symbol.starts_with(prefix)) return true;
  return false;
}

// GLIBCXX_3.4.30 among others: the highest of the same set, for texts.
std::string highest_like(const std::string& wanted, const std::set<std::string, std::less<>>& versions) {
  const auto numbers = [](const std::string& text) {
    std::vector<int> found;
    const size_t start = text.find_last_of('_');
    for (size_t at = start == std::string::npos ? 0 : start + 1; at < text.size();) {
      int value = 0;
      while (at < text.size() && text[at] >= '0' && text[at] <= '9' && value < 1'000'000)
        value = 10 * value + (text[at++] - '0');
      found.push_back(value);
      at = std::min(text.find('.', at), text.size() - 1) + 1;
    }
    return found;
  };
  const std::string set = wanted.substr(0, wanted.find_last_of('_') + 1);
  std::string best;
  for (const std::string& version : versions)
    if (version.starts_with(set) && (best.empty() || numbers(version) > numbers(best))) best = version;
  return best;
}

}  // namespace

std::map<std::string, std::vector<std::string>> read_linker_cache(std::span<const std::byte> bytes) {
  // The format that every glibc since 2.2 writes; before 2.32 an older one may stand in front of it.
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  struct Header {
    char magic[20];
    uint32_t num_entries, string_bytes, flags, extension, unused[3];
  };
  struct Entry {
    int32_t flags;
    uint32_t name, path, os_version;
    uint64_t hwcap;
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t begin = text.find(kMagic);
  std::map<std::string, std::vector<std::string>> found;
  Header header;
  if (begin == std::string_view::npos || text.size() - begin < sizeof header) return found;
  std::memcpy(&header, text.data() + begin, sizeof header);
  const std::string_view whole = text.substr(begin);
  const auto string_at = [&](uint32_t offset) {
    const size_t end = offset < whole.size() ? whole.find('\0', offset) : std::string_view::npos;
    return end == std::string_view::npos ? std::string() : std::string(whole.substr(offset, end - offset));
  };
  for (uint64_t i = 0; i < header.num_entries; ++i) {
    const uint64_t at = sizeof header + i * sizeof(Entry);
    if (whole.size() < at + sizeof(Entry)) break;
    Entry entry;
    std::memcpy(&entry, whole.data() + at, sizeof entry);
    const std::string path = string_at(entry.path);
    if (!path.empty()) found[string_at(entry.name)].push_back(path);
  }
  return found;
}

std::map<std::string, std::string> loaded_libraries() {
  std::map<std::string, std::string> found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        const std::string path = info->dlpi_name ? info->dlpi_name : "";
        if (path.find('/') == std::string::npos) return 0;
        auto& names = *static_cast<std::map<std::string, std::string>*>(into);
        names.try_emplace(fs::path(path).filename().string(), canonical_or_empty(path));
        return 0;
      },
      &found);
  return found;
}

bool LibrarySearch::Contents::has(std::string_view symbol) const {
  return std::ranges::binary_search(symbols, std::hash<std::string_view>{}(symbol));
}

LibrarySearch::LibrarySearch(Places places) : places_(std::move(places)) {
  cache_ = read_linker_cache(read_bytes(places_.cache_file, kMaxRead));
}

std::shared_ptr<const LibrarySearch::Contents> LibrarySearch::contents_of(const std::string& path) {
  std::shared_ptr<const Contents>& known = contents_[path];
  if (known) return known;
  auto contents = std::make_shared<Contents>();
  known = contents;
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) {
    contents->wrong = error.message();
    return known;
  }
  if (size > kMaxRead) return known;
  const std::vector<std::byte> bytes = read_bytes(path, kMaxRead);
  ElfFile file;
  if (const auto finding = read_elf(bytes, file)) {
    contents->wrong = finding->reason;
    return known;
  }
  if (file.machine != this_machine()) {
    contents->wrong = fmt::format("is built for {}", machine_name(file.machine));
    return known;
  }
  for (const std::string_view name : file.needed) contents->needed.emplace_back(name);
  contents->rpath = file.rpath;
  contents->runpath = file.runpath;
  for (const SymbolVersion& version : file.defined_versions) contents->versions.emplace(version.name);
  contents->symbols.reserve(file.exports.size());
  for (const Symbol& symbol : file.exports) contents->symbols.push_back(std::hash<std::string_view>{}(symbol.name));
  std::ranges::sort(contents->symbols);
  contents->is_whole = true;
  return known;
}

// As ld.so(8): RPATH of the asking file and of who brought it (unless the asking file has RUNPATH), LD_LIBRARY_PATH, RUNPATH.
std::vector<std::string> LibrarySearch::folders_before_cache(const From& from, const From& plugin) const {
  std::vector<std::string> folders;
  const auto add = [&](const std::vector<std::string>& more) { folders.insert(folders.end(), more.begin(), more.end()); };
  if (from.runpath.empty()) {
    add(folders_of(from.rpath, from.path));
    if (from.path != plugin.path && plugin.runpath.empty()) add(folders_of(plugin.rpath, plugin.path));
  }
  add(places_.library_path);
  add(folders_of(from.runpath, from.path));
  return folders;
}

std::string LibrarySearch::find(const std::string& name, const From& from, const From& plugin, std::string& wrong) {
  const auto usable = [&](const std::string& candidate) {
    const auto known = canonical_.find(candidate);
    std::string path = known != canonical_.end() ? known->second : canonical_or_empty(candidate);
    if (path.empty()) return std::string();  // looked for again: it may be installed later
    if (known == canonical_.end()) canonical_.emplace(candidate, path);
    const auto contents = contents_of(path);
    if (contents->wrong.empty()) return path;
    if (wrong.empty()) wrong = fmt::format("{} {}", path, contents->wrong);
    return std::string();
  };
  if (name.find('/') != std::string::npos) return usable(name);
  for (const std::string& folder : folders_before_cache(from, plugin))
    if (std::string path = usable((fs::path(folder) / name).string()); !path.empty()) return path;
  if (const auto cached = cache_.find(name); cached != cache_.end())
    for (const std::string& candidate : cached->second)
      if (std::string path = usable(candidate); !path.empty()) return path;
  for (const std::string& folder : places_.system_folders)
    if (std::string path = usable((fs::path(folder) / name).string()); !path.empty()) return path;
  // Brought by the program itself, from a place of its own: the linker takes what is there by name.
  const auto loaded = places_.loaded.find(name);
  return loaded == places_.loaded.end() ? std::string() : loaded->second;
}

std::vector<std::string> LibrarySearch::near_names(const std::string& name, const std::vector<std::string>& folders) const {
  const std::string stem = stem_of(name) + ".so";
  std::set<std::string> names;
  for (const auto& [known, paths] : cache_)
    if (known.starts_with(stem)) names.insert(known);
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const std::string known = entry->path().filename().string();
      if (known.starts_with(stem)) names.insert(known);
    }
  }
  names.erase(name);
  return {names.begin(), names.end()};
}

Finding LibrarySearch::missing(const Library& library, const From& from, const From& plugin, const std::string& wrong) const {
  const std::vector<std::string> folders = folders_before_cache(from, plugin);
  const std::vector<std::string> near = near_names(library.name, folders);
  std::string reason = fmt::format("needs {}, which is not found", library.name);
  if (library.needed_by != plugin.path)
    reason = fmt::format("needs {} through {}, which is not found", library.name, library.needed_by);
  reason += folders.empty() ? " (searched: the linker's cache)"
                            : fmt::format(" (searched: {}, the linker's cache)", fmt::join(folders, ", "));
  if (!near.empty()) reason += fmt::format("; there is {}", fmt::join(near, ", "));
  if (!wrong.empty()) reason += fmt::format("; {}", wrong);
  const std::string own = (fs::path(plugin.path).parent_path() / "lib").string();
  return {std::move(reason), near.empty()
                                 ? fmt::format("install {}, or put it into {}", library.name, own)
                                 : fmt::format("install {}, or the plugin's build for {}", library.name, near.front())};
}

Closure LibrarySearch::close_over(const ElfFile& file, const std::string& path) {
  const std::lock_guard lock(mutex_);
  const From plugin{path, std::string(file.rpath), std::string(file.runpath)};
  Closure closure;
  std::set<std::string> seen;
  std::vector<std::pair<std::string, From>> queue;  // what is asked for, and by whom
  for (const std::string_view name : file.needed) queue.emplace_back(name, plugin);
  bool all_read = true;
  const auto note = [&](Finding finding) {
    if (!closure.finding) closure.finding = std::move(finding);
  };
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [name, from] = queue[i];
    if (!seen.insert(name).second) continue;
    std::string wrong;
    Library library{name, find(name, from, plugin, wrong), from.path};
    if (library.path.empty()) {
      note(missing(library, from, plugin, wrong));
      closure.libraries.push_back(std::move(library));
      continue;
    }
    if (const auto loaded = places_.loaded.find(name);
        loaded != places_.loaded.end() && !loaded->second.empty() && !is_same_library(loaded->second, library.path)) {
      note({fmt::format("needs {} from {}, but this process holds {} under that name already, and the linker would take it",
                        name, library.path, loaded->second),
            "restart the process where this one takes the place of the other, give the plugin's copy a name of its own "
            "(SONAME), "
            "or let both use one file"});
    }
    const auto contents = contents_of(library.path);
    all_read = all_read && contents->is_whole;
    for (const std::string& next : contents->needed)
      queue.emplace_back(next, From{library.path, contents->rpath, contents->runpath});
    closure.libraries.push_back(std::move(library));
  }
  if (closure.finding) return closure;

  for (const SymbolVersion& version : file.needed_versions) {
    const auto library = std::ranges::find(closure.libraries, version.file, &Library::name);
    if (library == closure.libraries.end()) continue;
    const auto contents = contents_of(library->path);
    if (!contents->is_whole || contents->versions.empty() || contents->versions.contains(version.name)) continue;
    const std::string wanted(version.name);
    const std::string have = highest_like(wanted, contents->versions);
    closure.finding = Finding{fmt::format("needs {} of {}; {} has {}", wanted, version.file, library->path,
                                          have.empty() ? "none of that kind" : "up to " + have),
                              fmt::format("update {}, or use the plugin's build for this system", version.file)};
    return closure;
  }
  if (!all_read) return closure;
  for (const Symbol& symbol : file.undefined) {
    if (symbol.weak || is_of_sanitizer(symbol.name)) continue;
    const bool found = std::ranges::any_of(closure.libraries,
                                           [&](const Library& library) { return contents_of(library.path)->has(symbol.name); });
    if (found) continue;
    closure.finding = Finding{fmt::format("uses the symbol {}, which none of its libraries has", symbol.name),
                              "link the library that has it; -z defs says so when the plugin is linked"};
    return closure;
  }
  return closure;
}

}  // namespace anyattn::inspect
