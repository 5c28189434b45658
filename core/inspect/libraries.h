// SPDX-License-Identifier: Apache-2.0
// Where the dynamic linker would find the libraries that a file needs, and whether they have what it needs, without asking it.
// Included by discovery and tests. Reads folders, the linker's cache and ELF headers; opens nothing as code.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "inspect/elf.h"
#include "inspect/finding.h"

namespace anyattn::inspect {

struct Library {
  std::string name;       // as it is asked for
  std::string path;       // canonical; empty: found nowhere
  std::string needed_by;  // path of the file that asks
};

// Are they one file to the linker: the same path, or equal bytes under one name (a private copy of a plugin's library)?
bool is_same_library(const std::string& a, const std::string& b);

// What the answers are about: every library that a file needs, and that those need, each name once, in the linker's order.
struct Closure {
  std::vector<Library> libraries;
  std::optional<Finding> finding;  // the first thing that would keep the linker from opening the file
};

// The search of one process: LD_LIBRARY_PATH as given, the linker's cache, the system's folders. Thread-safe; files and folders
// are read once.
class LibrarySearch {
 public:
  struct Places {
    std::vector<std::string> library_path;  // LD_LIBRARY_PATH
    std::string cache_file = "/etc/ld.so.cache";
    std::vector<std::string> system_folders = {"/lib64", "/usr/lib64", "/lib", "/usr/lib"};
    std::map<std::string, std::string> loaded;  // what the process has already: name -> path
  };
  explicit LibrarySearch(Places places);

  const std::map<std::string, std::string>& loaded() const { return places_.loaded; }
  Closure close_over(const ElfFile& file, const std::string& path);

 private:
  struct Contents {  // of a library, read once
    std::vector<std::string> needed;
    std::string rpath, runpath;
    std::set<std::string, std::less<>> versions;
    std::vector<uint64_t> symbols;  // hashes of their names, sorted: an absent one is taken for present once in 10^15
    bool has(std::string_view symbol) const;
    bool is_whole = false;  // symbols and versions are all there; else the file is larger than is worth reading
    std::string wrong;      // set: it cannot be used, and why
  };
  struct From {
    std::string path, rpath, runpath;
  };
  std::shared_ptr<const Contents> contents_of(const std::string& path);
  std::vector<std::string> folders_before_cache(const From& from, const From& plugin) const;
  std::string find(const std::string& name, const From& from, const From& plugin, std::string& wrong);
  Finding missing(const Library& library, const From& from, const From& plugin, const std::string& wrong) const;
  std::vector<std::string> near_names(const std::string& name, const std::vector<std::string>& folders) const;

  const Places places_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> cache_;  // name -> paths, of the linker's cache
  std::map<std::string, std::string> canonical_;           // of what was found, by the path that was asked for
  std::map<std::string, std::shared_ptr<const Contents>> contents_;
};

// The paths that a linker cache names, by library; empty where the bytes are none.
std::map<std::string, std::vector<std::string>> read_linker_cache(std::span<const std::byte> bytes);

// Name and path of every shared object of this process.
std::map<std::string, std::string> loaded_libraries();

}  // namespace anyattn::inspect
