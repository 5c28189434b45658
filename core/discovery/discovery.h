// SPDX-License-Identifier: Apache-2.0
// Finds plugin files from the configuration alone, checks them without running anything of theirs, and drops duplicates.
// Included by the loader, the registry and the API. Opens nothing: no code of a plugin runs here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "anyattn/host.h"
#include "anyattn/types.h"
#include "config/config.h"

namespace anyattn::config {
struct Sidecar;
}

namespace anyattn::inspect {
class LibrarySearch;
}

namespace anyattn::discovery {

// How far a plugin came; the words of `list` and `explain`.
enum class Stage { kDiscover, kTrust, kInspect, kProbe, kOpen, kNegotiate, kRegister, kSupports };
const char* stage_name(Stage stage);  // "discover", "trust", ...; static
Stage stage_from_name(std::string_view name, Stage fallback);

// Why a file or a wish of the configuration gave no plugin. Reason and remedy are one sentence each.
struct Skip {
  std::string plugin;  // id, as far as it is known; else empty
  std::string path;    // file or folder; empty where only an id was asked for
  Stage stage = Stage::kDiscover;
  int32_t status = ANYATTN_NOT_FOUND;  // what a call that insists on this plugin returns
  std::string reason;
  std::string remedy;
  bool required = false;                           // the configuration insists: the start fails with text(skip)
  std::shared_ptr<const config::Sidecar> sidecar;  // which names were lost; null where no sidecar could be read
};
// "plugin ID (PATH) failed at STAGE: REASON; REMEDY"
std::string text(const Skip& skip);

// "0.1" of an ANYATTN_ABI_VERSION word.
std::string abi_text(uint32_t version);

class SeenFiles;

// What the host is, as far as a file can be refused for it without opening it.
struct Host {
  uint32_t abi_min = ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR_LOWEST);
  uint32_t abi_max = ANYATTN_ABI_VERSION_CURRENT;
  const anyattn_cpu_facts* cpu = nullptr;       // borrowed for the call; null: no plugin is refused for the processor
  inspect::LibrarySearch* libraries = nullptr;  // borrowed; null: what a file needs is not looked for
  SeenFiles* seen = nullptr;  // borrowed; null, or trust.level above none: every file is read and hashed each time
};

// A file that is opened together with a plugin, from beside it.
struct Companion {
  std::string path;  // where it lies
  std::string name;  // relative to the plugin's folder: lib/libacme.so.1
  std::string hash;  // BLAKE2b-256, hex
};

// A file that may be opened.
struct Candidate {
  std::string path;                                // absolute and canonical
  std::string content;                             // 64 hex digits: BLAKE2b-256 of the file
  std::string origin;                              // how it was found: "plugins.entries (FILE:LINE)" or "plugins.search FOLDER"
  std::string id;                                  // the sidecar's, else the entry's, else empty until opened
  std::shared_ptr<const config::Sidecar> sidecar;  // null: none beside the file
  std::optional<config::PluginEntry> entry;        // what plugins.entries says of it: options, required
  std::vector<std::string> libraries;              // canonical paths of all it would be bound to; empty where not looked for
  std::vector<Companion> companions;               // of its bundle, or of its own lib folder
  bool must_be_copied = false;                     // opened from the private store only: trust.level asks for it
  std::string version;                             // of its bundle; empty: it lies in none
  std::string signed_by;                           // id of the trusted key; empty: nobody
  std::set<std::string> device_code;               // "sm_90a", "gfx942"
};

struct Found {
  std::vector<Candidate> candidates;  // in order of precedence: entries with a file, then the folders in order
  std::vector<Skip> skips;            // everything looked at that is no candidate
  std::vector<std::string> warnings;  // worth a log line; the plugin is used all the same
};

// Looks at the files plugins.entries names, then at anyattn_*.so in each folder of plugins.search and its direct subfolders,
// sorted by name; at no other place. Throws nothing but std::bad_alloc.
Found discover(const config::Config& config, const Host& host);

// One file by absolute path, as if plugins.entries named it: for registration at run time.
Found discover_file(const config::PluginEntry& entry, const config::Config& config, const Host& host);

}  // namespace anyattn::discovery
